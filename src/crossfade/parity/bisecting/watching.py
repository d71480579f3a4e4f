"""Watch: sees every torch function that a half calls, writes down what it gave, and can make it give something else.

Calls are numbered in the order in which they are made, which is the same in every run: so a run can be repeated with
some of its calls changed. The torch functions that users write are seen (`F.layer_norm`), not what they are made of.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from ...bridge.libraries import named_leaves
from ...bridge.source_lines import is_search, is_users
from .points import Point

Change = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
"""(function, args, kwargs) -> what the call gives instead."""
UNCOUNTED = {torch._C._set_grad_enabled, torch.set_grad_enabled}
LARGE = 2_000_000  # elements: values above are not written down
Memory = tuple[int, int, tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a torch function, with what it was given and what it gave."""

    number: int
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    lines: tuple[str, ...]  # the user's
    line: str  # the innermost, a library's too
    module: str
    points: tuple[int, ...]  # what it gave, as points
    reads: tuple[int, ...]
    differentiable: bool  # gradients were recorded

    @property
    def by_optimizer(self) -> bool:
        """Whether one of torch's optimisers made the call."""
        return f"{os.sep}torch{os.sep}optim{os.sep}" in self.line

    @property
    def tensor(self) -> Tensor | None:
        """The result, when it is one tensor."""
        return self.result if isinstance(self.result, Tensor) else None


class Watch(TorchFunctionMode):
    """Runs with `changes` by number of call. With `write` everything is kept in `calls` and `points`."""

    def __init__(self, changes: Mapping[int, Change] | None = None, *, write: bool = False):
        super().__init__()
        self.changes, self.write = changes or {}, write
        self.calls: dict[int, Call] = {}
        self.points: dict[int, Point] = {}
        self.changed: dict[int, Any] = {}  # what the changed calls gave
        self._count = 0
        self._paused = 0
        self._latest: dict[Memory, int] = {}
        self._alive: list[Tensor] = []  # memory must not be used again while its address is a name
        self._modules: dict[int, str] = {}
        self._parameters: dict[int, str] = {}  # by address
        self._buffers: set[int] = set()  # addresses; layers write to them without a sign

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Calls of the tools themselves are not counted."""
        self._paused += 1
        try:
            yield
        finally:
            self._paused -= 1

    def name_module(self, module: nn.Module) -> None:
        """Parameters and buffers are inputs by their names."""
        self._modules = {id(part): path for path, part in module.named_modules()}
        if self.write:
            with self.paused():
                self._buffers = {buffer.data_ptr() for buffer in module.buffers()}
                self._parameters = {p.data_ptr(): name for name, p in module.named_parameters()}
                for name, tensor in (*module.named_parameters(), *module.named_buffers()):
                    self._point("input", tensor, name=name)

    def name_batch(self, tree: Any) -> None:
        """Tensors of a batch are inputs by their names."""
        if self.write:
            with self.paused():
                for name, leaf in named_leaves(tree).items():
                    if isinstance(leaf, Tensor):
                        self._point("input", leaf, name=f"batch.{name}" if name else "batch")

    def number_of(self, tensor: Any) -> int | None:
        """The point that a tensor holds now."""
        return self._latest.get(_memory(tensor)) if isinstance(tensor, Tensor) and _is_plain(tensor) else None

    def parameter_of(self, tensor: Tensor) -> str | None:
        """The name of the parameter that a tensor is."""
        return self._parameters.get(tensor.data_ptr())

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._paused or func in UNCOUNTED:
            return func(*args, **kwargs)
        self._count += 1
        number = self._count
        reads = self._reads((args, kwargs)) if self.write else ()
        versions = [(t, t._version) for t in tree_leaves((args, kwargs)) if self._is_watched(t)] if self.write else []
        if number in self.changes:
            out = self.changed[number] = self.changes[number](func, args, kwargs)
        else:
            out = func(*args, **kwargs)
        if self.write:
            with self.paused():
                moved = [t for t, version in versions if t._version != version or self._is_moved_buffer(t)]
                self._keep(number, func, args, kwargs, out, reads, moved)
        return out

    def _is_moved_buffer(self, tensor: Tensor) -> bool:
        number = self.number_of(tensor) if tensor.data_ptr() in self._buffers else None
        return number is not None and not np.array_equal(self.points[number].value, tensor.detach().numpy())

    def _is_watched(self, value: Any) -> bool:
        return isinstance(value, Tensor) and _is_plain(value) and not value.is_inference()

    def _keep(
        self,
        number: int,
        func: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        reads: tuple[int, ...],
        moved: list[Tensor],
    ) -> None:
        """`moved` are the arguments that the call has written to."""
        name = function_name(func)
        tensors = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        tensors += [tensor for tensor in moved if all(tensor is not t for t in tensors)]
        if not tensors:
            return
        lines, line, module = self._place()
        places = {"lines": lines, "module": module, "call": number}
        points = tuple(p for t in tensors if (p := self._point(name, t, reads=reads, **places)) is not None)
        grad = torch.is_grad_enabled()
        self.calls[number] = Call(number, name, args, kwargs, out, lines, line, module, points, reads, grad)

    def _point(self, operation: str, tensor: Tensor, **fields: Any) -> int | None:
        if not _is_plain(tensor) or tensor.numel() > LARGE:
            return None
        number = len(self.points)
        value = tensor.detach().cpu()
        array = (value.float() if value.dtype is torch.bfloat16 else value).numpy().copy()
        self.points[number] = Point(number, operation, array, **fields)
        self._latest[_memory(tensor)] = number
        self._alive.append(tensor)
        return number

    def _reads(self, given: Any) -> tuple[int, ...]:
        numbers = []
        with self.paused():
            for leaf in tree_leaves(given):
                if isinstance(leaf, Tensor) and _is_plain(leaf):
                    number = self.number_of(leaf)
                    number = self._point("constant", leaf) if number is None else number
                    numbers += [] if number is None else [number]
        return tuple(dict.fromkeys(numbers))

    def _place(self) -> tuple[tuple[str, ...], str, str]:
        """The user's lines, the innermost line and the module."""
        frame, lines, innermost, module = sys._getframe(1), [], "", ""
        while frame is not None and _is_own(frame.f_code.co_filename):
            frame = frame.f_back
        while frame is not None:
            file_name = frame.f_code.co_filename
            if is_search(file_name):
                break
            own = f"{file_name}:{frame.f_lineno}"
            innermost = innermost or ("" if file_name == torch.overrides.__file__ else own)
            if is_users(file_name):
                lines.append(own)
            if not module and frame.f_code.co_name == "forward":
                module = self._modules.get(id(frame.f_locals.get("self")), "")
            frame = frame.f_back
        return tuple(lines), innermost, module


@cache
def _is_own(file_name: str) -> bool:
    """Whether a frame is the watch's own, or that of a wrapper that checks types."""
    wrappers = (f"{os.sep}jaxtyping{os.sep}", f"{os.sep}beartype{os.sep}")
    return is_search(file_name) or file_name.startswith("<") or any(part in file_name for part in wrappers)


def function_name(func: Any) -> str:
    """`add` for `Tensor.add`, `__add__`, `__radd__` and so on; `T` for the attribute."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        return str(getattr(func.__self__, "__name__", "attribute"))
    return name.strip("_") if name.startswith("__") else name


def _is_plain(tensor: Tensor) -> bool:
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # pyright: ignore[reportAttributeAccessIssue]
    return not wrapped and tensor.numel() > 0 and tensor.layout is torch.strided and not tensor.is_complex()


def _memory(tensor: Tensor) -> Memory:
    offset = int(tensor.storage_offset())
    return (tensor.untyped_storage().data_ptr(), offset, tuple(tensor.shape), tensor.stride())


def to_tensor(value: np.ndarray, like: Tensor) -> Tensor:
    """An array as a tensor of the type and shape of another."""
    return torch.as_tensor(value.reshape(like.shape)).to(like.dtype)
