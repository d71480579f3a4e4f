"""In-place operations and views: which values a write changes.

Tensors that share memory are views of one storage. A write through one of them makes the others stale; when one of
those is read again, its value is taken from the storage as a flat array, at the places its strides say. Nothing of this
costs anything for memory that is written to through a single tensor.

A detached tensor shares values with what it was detached from, and no gradient: it and its views are another lineage of
the same storage. A write through one lineage changes the values of all, and the gradient of its own alone.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torch import Tensor

from .graph import Ref

Emit = Callable[..., Ref]
"""`emit(op, args, shape, dtype)` records an operation of our own and returns its value."""


@dataclass
class Known:
    """What a tensor is at a version of its storage."""

    value: Ref
    version: int
    lineage: int
    source: Ref | None = None  # of a detached tensor: the value with its gradient


@dataclass
class Lineage:
    """Tensors that share memory and gradient: the last one that filled the storage, or all of it as one axis."""

    owner: Tensor
    value: Ref
    version: int = 0
    flat: Ref | None = None


@dataclass
class Storage:
    """Memory that tensors share: how often it was written to, and in which lineage last."""

    version: int = 0
    latest: int = 0
    lineages: list[Lineage] = field(default_factory=list)


State = tuple[dict[int, Known], dict[int, Storage]]


class Memory:
    """Values of tensors, by the tensor and by the storage behind it."""

    def __init__(self, emit: Emit):
        self.emit = emit
        self.known: dict[int, Known] = {}
        self.storages: dict[int, Storage] = {}
        self.alive: list[Tensor] = []  # so that no id is given twice

    def holds(self, tensor: Tensor) -> bool:
        return id(tensor) in self.known or storage_of(tensor) in self.storages

    def add(self, tensor: Tensor, value: Ref, beside: Tensor | None = None) -> None:
        """A new tensor, with memory of its own or a view of `beside`."""
        known = None if beside is None else self.known.get(id(beside))
        storage = self.storages.setdefault(storage_of(tensor), Storage())
        if known is None or beside is None or storage_of(beside) != storage_of(tensor):
            self._begin(tensor, value, storage)
        else:
            self._note(tensor, Known(value, storage.version, known.lineage))

    def detach(self, tensor: Tensor, value: Ref, of: Tensor) -> None:
        """A tensor with the memory of another and a gradient of its own."""
        source = self.read(of)
        self._begin(tensor, value, self.storages[storage_of(tensor)], self.known[id(of)].source or source)

    def renew(self, tensor: Tensor, value: Ref) -> None:
        """A tensor whose value is the same and whose gradient is another; what was saved of it has that too."""
        before = self.read(tensor)
        self.known |= {key: replace(known, source=value) for key, known in self.known.items() if known.source == before}
        self._begin(tensor, value, self.storages[storage_of(tensor)])

    def state(self) -> State:
        """All of it as it is now, to go back to."""
        copied = lambda storage: replace(storage, lineages=[replace(lineage) for lineage in storage.lineages])
        return dict(self.known), {key: copied(storage) for key, storage in self.storages.items()}

    def go_back(self, state: State) -> None:
        """Forgets what was written since; tensors that are new stay known."""
        known, storages = state
        self.known, self.storages = self.known | known, self.storages | storages

    def read(self, tensor: Tensor) -> Ref:
        """The tensor's value now."""
        storage, known = self.storages[storage_of(tensor)], self.known.get(id(tensor))
        if known is not None and known.version == storage.version:
            if known.source is not None and tensor.grad_fn is not None:
                return known.source  # autograd detaches what it saves, and attaches it again
            return known.value
        flat = self._flat(storage, storage.latest if known is None else known.lineage)
        shape = tuple(tensor.shape)
        value = self.emit("strided_read", (flat, shape, tensor.stride(), tensor.storage_offset()), shape, tensor.dtype)
        if known is None:
            value = self.emit("detach", (value,), shape, tensor.dtype)
            self._begin(tensor, value, storage)
        else:
            self._note(tensor, Known(value, storage.version, known.lineage))
        return value

    def write(self, tensor: Tensor, value: Ref) -> None:
        """The tensor's memory now holds `value`."""
        self.read(tensor)
        storage, known = self.storages[storage_of(tensor)], self.known[id(tensor)]
        lineage = storage.lineages[known.lineage]
        if _fills(tensor):
            lineage.owner, lineage.value, lineage.flat = tensor, value, None
        else:
            flat = self._flat(storage, known.lineage)
            args = (flat, value, tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
            lineage.flat = self.emit("strided_write", args, (_elements(tensor),), tensor.dtype)
        storage.version += 1
        storage.latest, lineage.version = known.lineage, storage.version
        self._note(tensor, Known(value, storage.version, known.lineage))

    def _begin(self, tensor: Tensor, value: Ref, storage: Storage, source: Ref | None = None) -> None:
        storage.lineages.append(Lineage(tensor, value, storage.version))
        self._note(tensor, Known(value, storage.version, len(storage.lineages) - 1, source))

    def _note(self, tensor: Tensor, known: Known) -> None:
        self.alive.append(tensor)
        self.known[id(tensor)] = known

    def _flat(self, storage: Storage, index: int) -> Ref:
        """The whole storage as one axis, with the gradient of a lineage."""
        lineage = storage.lineages[index]
        owner, size = lineage.owner, _elements(lineage.owner)
        if lineage.flat is None:
            args = (lineage.value, owner.stride(), owner.storage_offset(), size)
            lineage.flat = self.emit("strided_flat", args, (size,), owner.dtype)
        if lineage.version < storage.version:
            args = (lineage.flat, self._flat(storage, storage.latest))
            lineage.flat, lineage.version = self.emit("keep_gradient", args, (size,), owner.dtype), storage.version
        return lineage.flat


def storage_of(tensor: Tensor) -> int:
    """The memory behind a tensor, as a number."""
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
