"""torch's side of the memory that `bridge.Step` shares: who wrote last is found by comparing bits with a snapshot.

Version counters would not do: `p.data.clamp_(...)` and NumPy views write without counting.
"""

from collections.abc import Callable, Iterable

import jax
import numpy as np
import torch

from ..errors import UsageError
from .transfer import narrowed, numpy_to_jax, tensor_to_numpy


class FlatMemory:
    """Parameters of one group as views of one flat tensor."""

    def __init__(self, named: dict[str, torch.Tensor]):
        self.named = named
        self.tensor = torch.cat([parameter.detach().reshape(-1) for parameter in named.values()])
        start = 0
        for parameter in named.values():
            parameter.data = self.tensor[start : start + parameter.numel()].view(parameter.shape)
            start += parameter.numel()
        self.array = self.tensor.numpy()
        self.dtype = self.array.dtype
        self.seen = bytearray(self.array)  # `seen != array` when torch has written: a bytearray compares by memcmp
        self._expected = [(parameter, parameter.data_ptr(), name) for name, parameter in named.items()]

    def check_in_place(self) -> None:
        """The parameters must still be the views they were made."""
        for parameter, pointer, name in self._expected:
            if parameter.data_ptr() != pointer or not parameter.requires_grad:
                raise UsageError(
                    f"{name}: expected the parameter the step was opened with; it was moved, cast, replaced or frozen "
                    f"meanwhile. Close the step before such a change, and open a new one after it."
                )

    def accept(self) -> np.ndarray:
        """What torch holds now, remembered as seen."""
        self.seen[:] = self.array.data.cast("B")
        return self.array.copy()

    def write(self, values: np.ndarray) -> None:
        """Puts JAX's values in place. NumPy copies: torch's `copy_` would wake its thread pool beside XLA's."""
        np.copyto(self.array, values)
        self.seen[:] = self.array.data.cast("B")


class FixedMemory:
    """Arrays the step reads but does not train: frozen and unused parameters, and buffers."""

    def __init__(self, named: dict[str, torch.Tensor]):
        self.named = named
        self.arrays: dict[str, jax.Array] = {}
        self._snapshots: dict[str, np.ndarray] = {}
        self.accept(named)

    def changed(self) -> list[str]:
        """Names torch has written to since the last `write` or `accept`."""
        return [
            name
            for name, tensor in self.named.items()
            if not np.array_equal(tensor.numpy(force=True), self._snapshots[name], equal_nan=True)
        ]

    def accept(self, names: Iterable[str]) -> None:
        """Takes torch's values over to JAX."""
        for name in names:
            self._snapshots[name] = tensor_to_numpy(self.named[name])
            integers = self._snapshots[name].dtype.kind in "iu"
            array = narrowed(self._snapshots[name], name) if integers else self._snapshots[name]
            self.arrays[name] = numpy_to_jax(array, name)

    def write(self, names: Iterable[str]) -> None:
        """Puts JAX's values of some buffers in place."""
        for name in names:
            np.copyto(self._snapshots[name], np.asarray(self.arrays[name]))
            np.copyto(self.named[name].detach().numpy(), self._snapshots[name])


class Watch:
    """A hook that calls `action` and nothing more. Copies of a module carry copies of it that do nothing."""

    def __init__(self, action: Callable[[], None] | None = None):
        self.action = action

    def __call__(self, *_: object) -> None:
        if self.action is not None:
            self.action()

    def __reduce__(self):
        return Watch, ()
