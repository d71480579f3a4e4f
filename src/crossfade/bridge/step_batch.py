"""How a batch enters a compiled step: as private NumPy copies, handed straight to the compiled function.

That is the safe way and the quick one: a device array made first, or DLPack, costs several times as much per array.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.tree_util import default_registry
from jaxtyping import PyTree

from ..errors import TransferError, UsageError
from .transfer import narrowed, tensor_to_numpy

FLATTEN = default_registry.flatten  # `jax.tree.flatten` without two Python frames


class Intake:
    """Takes batches like the first: structure and dtypes must stay, shapes may change.

    With JAX's 64-bit types off, 64-bit integers are held in 32 bits, checked each time; 64-bit floats are refused.
    """

    def __init__(self, first: PyTree):
        leaves, self.structure = FLATTEN(first)
        paths = jax.tree_util.tree_flatten_with_path(first)[0]
        self._names = [f"batch{jax.tree_util.keystr(path)}" for path, _ in paths]
        views = [_view(leaf) for leaf in leaves]
        self._dtypes = [view.dtype for view in views]
        self._narrow = [_narrow(name, view) for name, view in zip(self._names, views, strict=True)]
        self._as_it_is = not any(self._narrow)

    def __call__(self, batch: PyTree) -> list[Any]:
        """The arrays of a batch as private copies; JAX arrays, which nobody can overwrite, come as they are."""
        leaves, structure = FLATTEN(batch)
        if structure != self.structure:
            raise UsageError(f"expected batches of structure {self.structure}, as the first was; got {structure}.")
        views = [leaf if type(leaf) is np.ndarray else _view(leaf) for leaf in leaves]
        if [view.dtype for view in views] != self._dtypes:
            self._refuse(views)
        if self._as_it_is:
            return [view.copy() if type(view) is np.ndarray else view for view in views]
        return [
            narrowed(view, name) if name else view.copy() if type(view) is np.ndarray else view
            for view, name in zip(views, self._narrow, strict=True)
        ]

    def _refuse(self, views: list[Any]) -> None:
        for name, view, dtype in zip(self._names, views, self._dtypes, strict=True):
            if view.dtype != dtype:
                raise UsageError(f"{name}: expected {dtype}, as in the first batch, got {view.dtype}. Cast it.")


class Rates:
    """Learning rates as the compiled function takes them: from the host when new, resident once they stay."""

    def __init__(self, dtype: np.dtype):
        self._dtype = dtype
        self._values: list[Any] = []
        self._array: Any = None

    def __call__(self, values: list[Any]) -> Any:
        if values != self._values:
            self._values, self._array = values, np.array(values, self._dtype)
        elif type(self._array) is np.ndarray:
            self._array = jnp.array(self._array)
        return self._array


def x64() -> bool:
    """Whether JAX keeps 64-bit types here and now."""
    return jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]


def stack(batches: list[PyTree]) -> PyTree:
    """Several batches of equal shapes as one, along a new leading axis."""
    flat = [FLATTEN(batch) for batch in batches]
    shapes = [(structure, [np.shape(leaf) for leaf in leaves]) for leaves, structure in flat]
    if odd := [i for i, shape in enumerate(shapes) if shape != shapes[0]]:
        raise UsageError(
            f"expected batches of one structure and shape; number {odd[0]} has {shapes[odd[0]]} and number 0 has "
            f"{shapes[0]}. Leave a short last batch to a call of step(batch)."
        )
    if not batches:
        raise UsageError("expected at least one batch, got an empty list.")
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    return shapes[0][0].unflatten([np.stack([np.asarray(_view(leaf)) for leaf in column]) for column in columns])


def _view(leaf: Any) -> Any:
    """A NumPy or JAX array; nothing is copied if it can be helped."""
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


def _narrow(name: str, view: Any) -> str | None:
    """The name of an array of integers that must be narrowed, to report one that does not fit; None for the others."""
    if isinstance(view, jax.Array) or jax.dtypes.canonicalize_dtype(view.dtype) == view.dtype:
        return None
    if view.dtype.kind not in "iu":
        raise TransferError(
            f"{name}: expected at most 32-bit floats because JAX's 64-bit types are off, got {view.dtype}. "
            f"Cast it, or run inside `with jax.enable_x64(True):`."
        )
    return name
