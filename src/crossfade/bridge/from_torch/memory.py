"""In-place operations and views: which values a write changes.

Tensors that share memory are views of one storage. A write through one of them makes the others stale; when one of
those is read again, its value is taken from the storage as a flat array, at the places its strides say. Nothing of this
costs anything for memory that is written to through a single tensor.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from .graph import Ref

Emit = Callable[..., Ref]
"""`emit(op, args, shape, dtype)` records an operation of our own and returns its value."""


@dataclass
class Known:
    """What a tensor is at a version of its storage."""

    value: Ref
    version: int
    detached: bool
    source: Ref | None = None  # of a detached tensor: the value with its gradient


@dataclass
class Storage:
    """Memory that tensors share: how often it was written to, and by which tensor last."""

    owner: Tensor
    value: Ref
    version: int = 0
    flat: Ref | None = None
    without_gradient: int = 0  # the last version written by a detached tensor


class Memory:
    """Values of tensors, by the tensor and by the storage behind it."""

    def __init__(self, emit: Emit):
        self.emit = emit
        self.known: dict[int, Known] = {}
        self.storages: dict[int, Storage] = {}
        self.alive: list[Tensor] = []  # so that no id is given twice

    def holds(self, tensor: Tensor) -> bool:
        return id(tensor) in self.known or _storage(tensor) in self.storages

    def add(self, tensor: Tensor, value: Ref, *, detached: bool = False, source: Ref | None = None) -> None:
        """A new tensor: with memory of its own, or a view of memory that is known."""
        self.alive.append(tensor)
        storage = self.storages.setdefault(_storage(tensor), Storage(tensor, value))
        self.known[id(tensor)] = Known(value, storage.version, detached, source)

    def read(self, tensor: Tensor) -> Ref:
        """The tensor's value now."""
        storage = self.storages[_storage(tensor)]
        known = self.known.get(id(tensor))
        if known is not None and known.version == storage.version:
            if known.source is not None and tensor.grad_fn is not None:
                return known.source  # autograd detaches what it saves, and attaches it again
            return known.value
        args = (self._flat(storage), tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        value = self.emit("strided_read", args, tuple(tensor.shape), tensor.dtype)
        if known is None or known.detached:
            value = self.emit("detach", (value,), tuple(tensor.shape), tensor.dtype)
        elif storage.without_gradient > known.version:
            value = self.emit("keep_gradient", (known.value, value), tuple(tensor.shape), tensor.dtype)
        self.alive.append(tensor)
        self.known[id(tensor)] = Known(value, storage.version, known is None or known.detached)
        return value

    def write(self, tensor: Tensor, value: Ref) -> None:
        """The tensor's memory now holds `value`."""
        storage, known = self.storages[_storage(tensor)], self.known.get(id(tensor))
        detached = (known is None or known.detached) and not tensor.requires_grad
        if _fills(tensor):
            storage.owner, storage.value, storage.flat = tensor, value, None
        else:
            args = (self._flat(storage), value, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
            storage.flat = self.emit("strided_write", args, (_elements(tensor),), tensor.dtype)
        storage.version += 1
        if detached:
            storage.without_gradient = storage.version
        self.alive.append(tensor)
        self.known[id(tensor)] = Known(value, storage.version, detached)

    def _flat(self, storage: Storage) -> Ref:
        """The whole storage as one axis."""
        if storage.flat is None:
            owner = storage.owner
            args = (storage.value, owner.stride(), owner.storage_offset(), _elements(owner))
            storage.flat = self.emit("strided_flat", args, (_elements(owner),), owner.dtype)
        return storage.flat


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _elements(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _fills(tensor: Tensor) -> bool:
    """Whether every element of the storage is one of the tensor."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return tensor.numel() == _elements(tensor) and tensor.storage_offset() == 0
