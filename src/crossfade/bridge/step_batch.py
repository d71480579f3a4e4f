"""How a batch enters a compiled step: as private NumPy copies, handed straight to the compiled function.

That is the safe way and the quick one: a device array made first, or DLPack, costs several times as much per array.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch
from jaxtyping import PyTree

from ..errors import TransferError, UsageError
from .transfer import narrowed, tensor_to_numpy


@dataclass(frozen=True)
class Batch:
    """A batch opened for reading; nothing is copied until `private`."""

    views: list[Any]  # NumPy arrays, or JAX arrays, which nobody can overwrite
    structure: Any

    @classmethod
    def open(cls, tree: PyTree) -> "Batch":
        leaves, structure = jax.tree.flatten(tree)
        return cls([_view(leaf) for leaf in leaves], structure)

    @property
    def signature(self) -> tuple:
        """What a compiled function depends on."""
        return self.structure, tuple([(view.shape, view.dtype) for view in self.views])

    def private(self, narrow: list[str | None]) -> PyTree:
        """The tree of private copies; `narrow` is what `narrowing` said of this signature."""
        pairs = zip(self.views, narrow, strict=True)
        return self.structure.unflatten([view.copy() if name is None else narrowed(view, name) for view, name in pairs])

    def first(self) -> "Batch":
        """The first of several batches along the leading axis."""
        return Batch([view[0] for view in self.views], self.structure)

    def names(self) -> list[str]:
        """The path of each array, for messages."""
        paths, _ = jax.tree_util.tree_flatten_with_path(self.structure.unflatten(self.views))
        return [f"batch{jax.tree_util.keystr(path)}" for path, _ in paths]

    def narrowing(self) -> list[str | None]:
        """For each array None, or its name when it holds 64-bit integers that JAX will hold in 32 bits.

        Integers are checked at each crossing. Floats never lose precision unasked.
        """
        narrow = []
        for name, view in zip(self.names(), self.views, strict=True):
            wide = isinstance(view, np.ndarray) and jax.dtypes.canonicalize_dtype(view.dtype) != view.dtype
            if wide and view.dtype.kind not in "iu":
                raise TransferError(
                    f"{name}: expected at most 32-bit floats because JAX's 64-bit types are off, got {view.dtype}. "
                    f"Cast it, or run inside `with jax.enable_x64(True):`."
                )
            narrow.append(name if wide else None)
        return narrow

    def check_like(self, other: "Batch") -> None:
        """Shapes may change from call to call; structure and dtypes may not."""
        if self.structure != other.structure:
            raise UsageError(f"expected batches of structure {other.structure}, got {self.structure}.")
        for name, view, expected in zip(self.names(), self.views, other.views, strict=True):
            if view.dtype != expected.dtype:
                raise UsageError(f"{name}: expected {expected.dtype} as in the first batch, got {view.dtype}. Cast it.")


def x64() -> bool:
    """Whether JAX keeps 64-bit types here and now."""
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def stack(batches: list[PyTree]) -> PyTree:
    """Several batches of equal shapes as one, along a new leading axis."""
    if not batches:
        raise UsageError("expected at least one batch, got an empty list.")
    opened = [Batch.open(batch) for batch in batches]
    for i, batch in enumerate(opened):
        if batch.signature != opened[0].signature:
            raise UsageError(
                f"expected batches of one structure, shape and dtype; number {i} has {batch.signature} and number 0 "
                f"has {opened[0].signature}. Leave the short last batch to a call of step(batch)."
            )
    columns = zip(*(batch.views for batch in opened), strict=True)
    return opened[0].structure.unflatten([np.stack([np.asarray(view) for view in column]) for column in columns])


def _view(leaf: Any) -> Any:
    if type(leaf) is np.ndarray or isinstance(leaf, jax.Array):
        return leaf
    if isinstance(leaf, torch.Tensor):
        try:
            return leaf.numpy(force=True)
        except TypeError:  # a type NumPy has not
            return tensor_to_numpy(leaf, "batch")
    if isinstance(leaf, bool | int | float | complex):
        return np.asarray(leaf, jax.dtypes.canonicalize_dtype(type(leaf)))
    if isinstance(leaf, np.ndarray | np.generic):
        return np.asarray(leaf)
    raise TransferError(f"expected tensors, arrays and numbers in a batch, got {type(leaf).__name__}.")
