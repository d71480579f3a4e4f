"""torch's memory as `bridge.Step` uses it: read in place by every program, and written when it has ended.

torch's own memory is the truth. Whoever holds a parameter, a view of it or its shared memory sees every step, and
whatever anybody writes there enters the next one.
"""

import ctypes
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from operator import methodcaller, setitem
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from ..transfer import kept, narrowed, tensor_to_numpy
from .program import Group

AHEAD = 64  # losses for which tensors are made at once

_address = methodcaller("unsafe_buffer_pointer")
_moves = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
move = _moves(ctypes.cast(ctypes.memmove, ctypes.c_void_p).value or 0)
"""`ctypes.memmove`, but Python's lock is not let go: other threads see what is written all at once."""


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Zeros where XLA can read them in place: torch's allocator aligns as XLA asks."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    room = torch.zeros(count * dtype.itemsize + (1 << 18), dtype=torch.uint8)
    return room[: count * dtype.itemsize].numpy().view(dtype).reshape(shape)


def window(array: np.ndarray) -> Any:
    """What to hand to compiled functions in place of an array: they see what it holds when they run.

    On a CPU this is a JAX array over the same memory: a NumPy argument is wrapped anew by every call, which takes ten
    times as long. Whoever writes into the memory must wait for the programs that read it. Where JAX has made a copy,
    the array itself must do.
    """
    wrapped = jax.device_put(array)
    return wrapped if _is_over(wrapped, array) else array


def _is_over(wrapped: Any, array: np.ndarray) -> bool:
    """Whether a JAX array has the same memory."""
    return isinstance(wrapped, jax.Array) and bool(array.size) and _address(wrapped) == array.ctypes.data


class TrainedMemory:
    """Parameters as torch holds them, and one flat array per group, of which the program takes the whole or the parts.

    A parameter whose memory nobody else can see is moved into the flat array, once, and is read and written there.
    Others (a view of it is held, another process shares it) stay where they are and are copied.
    """

    def __init__(
        self, groups: tuple[Group, ...], named: dict[str, torch.Tensor], before: "TrainedMemory | None" = None
    ):
        self.tensors = [named[name] for group in groups for name in group.shapes]
        self._kinds = list(map(_kind, self.tensors))
        dtype = tensor_to_numpy(self.tensors[0]).dtype
        self._flats = [memory((group.size,), dtype) for group in groups]
        cut = [group.cut(flat) for group, flat in zip(groups, self._flats, strict=True)]
        self._places = [place for leaves in cut for place in leaves.values()]
        for tensor, place in zip(self.tensors, self._places, strict=True):
            if _is_private(tensor, before):
                place[...] = tensor.detach().numpy()
                tensor.data = torch.from_numpy(place)
        formed = [group.as_formed(flat) for group, flat in zip(groups, self._flats, strict=True)]
        self._parts: list[np.ndarray] = jax.tree.leaves(formed)
        self._windows = list(map(window, self._parts))
        self.at_home = all(isinstance(each, jax.Array) for each in self._windows)  # JAX computes in the CPU's memory
        if self.at_home:  # bound to the device, so that the results of programs are there too
            bound = [jax.device_put(each, each.device) for each in self._windows]
            self.at_home = all(map(_is_over, bound, self._parts))
            self._windows = bound if self.at_home else self._windows
        self.device = self._windows[0].device if self.at_home else None  # to which the program's arrays are bound
        self._addresses = [part.ctypes.data for part in self._parts]
        self._bytes = [part.nbytes for part in self._parts]
        self._find()

    def _find(self) -> None:
        """Looks up which parameters are outside the flat arrays."""
        self._pointers = list(map(torch.Tensor.data_ptr, self.tensors))
        outside = [i for i, place in enumerate(self._places) if place.ctypes.data != self._pointers[i]]
        self._outside = [self.tensors[i].detach().numpy() for i in outside]
        self.copies = [self._places[i] for i in outside]  # of what is outside

    def stands(self) -> bool:
        """Whether these are still the same kind of parameters, wherever they are now."""
        if list(map(torch.Tensor.data_ptr, self.tensors)) != self._pointers:
            if list(map(_kind, self.tensors)) != self._kinds:
                return False
            self._find()
        return True

    def read(self) -> list[Any]:
        """The flat arrays, or their parts, as arguments, holding what torch holds now."""
        if self._outside:
            deque(map(setitem, self.copies, repeat(...), self._outside), maxlen=0)
        return self._windows

    def writing(self, results: list[Any]) -> Iterator[Any]:
        """What writes the arrays that a program gives, when it is gone through. No bytecode of Python runs then."""
        put: Any = setitem
        outside = map(put, self._outside, repeat(...), self.copies)
        if self.at_home:
            return chain(map(move, self._addresses, list(map(_address, results)), self._bytes), outside)
        return chain(map(put, self._parts, repeat(...), list(map(np.asarray, results))), outside)


class Results:
    """Losses as tensors of their own, made ahead: many in a row take a tenth of what one takes between two programs."""

    def __init__(self):
        self._ready: list[tuple[int, torch.Tensor]] = []
        self._aval: Any = None  # JAX's description of the last loss; a program gives the same object every time
        self._bytes = 0

    def __call__(self, loss: jax.Array, at_home: bool) -> torch.Tensor:
        """The loss of a step, or those of an epoch; `at_home` says that they are in the CPU's memory."""
        if not self._ready or loss.aval is not self._aval:
            if loss.ndim or not at_home:
                return torch.from_numpy(np.array(loss))
            rooms = [np.empty((), loss.dtype) for _ in range(AHEAD)]
            self._ready = [(room.ctypes.data, torch.from_numpy(room)) for room in rooms]
            self._aval, self._bytes = loss.aval, loss.dtype.itemsize
        address, tensor = self._ready.pop()
        move(address, loss.unsafe_buffer_pointer(), self._bytes)
        return tensor


class FixedMemory:
    """Arrays the program reads but does not train: frozen and unused parameters, parameters of others, and buffers."""

    def __init__(self, module: nn.Module, named: dict[str, torch.Tensor]):
        homes = {
            f"{prefix}.{key}" if prefix else key: (home, key)
            for prefix, part in module.named_modules()
            for home in (part._parameters, part._buffers)
            for key in home
        }
        self._homes = {name: homes.get(name, ({name: tensor}, name)) for name, tensor in named.items()}
        self.names = tuple(self._homes)
        self._seen: dict[str, tuple[Any, int]] = {}
        self._views: dict[str, np.ndarray] = {}
        self._windows: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Every array by name as an argument, holding what torch holds now."""
        for name, (home, key) in self._homes.items():
            tensor: Any = home[key]  # a module may replace a buffer by a new tensor
            known, pointer = self._seen.get(name, (None, 0))
            if tensor is not known or tensor.data_ptr() != pointer:
                view = tensor_to_numpy(tensor, name, copy=False)
                integers = view.dtype.kind in "iu"  # may be narrower in JAX, which is checked every time
                self._windows[name] = view if integers else window(kept(view, name))
                self._views[name], self._seen[name] = view, (tensor, tensor.data_ptr())
            if self._views[name].dtype.kind in "iu":
                self._windows[name] = narrowed(self._views[name], name)
        return self._windows

    def targets(self, names: Iterable[str]) -> list[np.ndarray]:
        """Where new values of some buffers go."""
        return [self._views[name] for name in names]


def _kind(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.shape, tensor.device, tensor.layout


def _is_private(tensor: torch.Tensor, before: TrainedMemory | None) -> bool:
    """Whether nobody but this tensor can see its memory: no view, no NumPy array, no other process."""
    ours = before is not None and any(tensor is known for known in before.tensors)
    return (
        hasattr(torch._C, "_storage_Use_Count")
        and _holders(tensor) == _holders(torch.empty(1))  # as many as a tensor that was just made
        and (tensor.untyped_storage().resizable() or ours)  # memory that torch did not allocate belongs to somebody
        and not tensor.is_shared()
        and tensor.is_contiguous()
    )


def _holders(tensor: torch.Tensor) -> tuple[int, int]:
    """How many tensors, and how many names in Python, hold the memory of this one."""
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata), sys.getrefcount(storage)
