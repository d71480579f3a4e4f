"""What torch does above ATen, where a record does not see it: recurrent layers, `detach_`, `item()`, a new `.data`."""

from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SET_DATA = getattr(torch.Tensor.data, "__set__")  # noqa: B009 (for type checkers it is a tensor)
LAYERS = {"lstm", "gru", "rnn_tanh", "rnn_relu"}


@runtime_checkable
class Recording(Protocol):
    """Who writes it down."""

    def whole(self, name: str, func: Any, args: tuple) -> Any: ...

    def detached(self, tensor: Tensor) -> None: ...

    def new_data(self) -> None: ...

    def went_backward(self) -> None: ...

    def is_open(self, tensor: Tensor) -> bool: ...


class AboveATen(TorchFunctionMode):
    """Calls the recording for what it would not see.

    A recurrent layer is one operation: torch would unroll it over time, which takes JAX long to compile. Not so for
    packed sequences, nor for layers with dropout between them, whose noise torch draws one by one.
    """

    def __init__(self, recording: Recording):
        super().__init__()
        self.recording = recording

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in LAYERS and not kwargs and _is_plain(args):
            return self.recording.whole(name, func, args)
        if func is Tensor.item and self.recording.is_open(args[0]):
            return args[0].detach().reshape(())
        if func == SET_DATA:
            self.recording.new_data()
        if func is Tensor.backward:
            self.recording.went_backward()
        result = func(*args, **(kwargs or {}))
        if func in (torch.Tensor.detach_, torch.detach_):
            self.recording.detached(args[0])
        return result


def _is_plain(args: tuple) -> bool:
    """(input, state, parameters, has_biases, num_layers, dropout, train, bidirectional, batch_first)"""
    return len(args) == 9 and isinstance(args[2], list | tuple) and not (args[5] and args[6])
