"""How a batch enters a compiled step: copied into memory of our own, which the program reads in place.

That is the safe way and the quick one: a NumPy argument, a device array or DLPack cost several times as much per array.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import jax
import numpy as np
import torch
from jax.tree_util import default_registry
from jaxtyping import PyTree

from ...errors import TransferError, UsageError
from ..transfer import narrowed, tensor_to_numpy
from .memory import memory, move, window

FLATTEN = default_registry.flatten  # `jax.tree.flatten` without two Python frames
STAGES = 8  # batch shapes for which memory is kept

_FORM, _ARRAY = attrgetter("shape", "dtype"), attrgetter("__class__", "shape", "dtype")
_TENSOR = attrgetter("__class__", "shape", "dtype", "is_cpu", "requires_grad")


class Intake:
    """Takes batches like the first: structure and dtypes must stay, shapes may change.

    With JAX's 64-bit types off, 64-bit integers are held in 32 bits, checked each time; 64-bit floats are refused.
    """

    def __init__(self, first: PyTree):
        leaves, self.structure = FLATTEN(first)
        paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(first)[0]]
        self._names = [f"batch{jax.tree_util.keystr(path)}" for path in paths]
        views = list(map(_view, leaves))
        self._dtypes = [view.dtype for view in views]
        self._narrow = [_narrow(name, view) for name, view in zip(self._names, views, strict=True)]
        self._type, self._size, self._pick = _picking(first, paths)
        tensors = bool(leaves) and all(type(leaf) is torch.Tensor and leaf.is_cpu for leaf in leaves)
        self._torch_dtypes = [leaf.dtype for leaf in leaves] if tensors else None
        self._stages: dict[tuple, tuple] = {}
        self._stage(views)

    def __call__(self, batch: PyTree) -> list[Any]:
        """The arrays of a batch as arguments of the next program."""
        quick = type(batch) is self._type and len(batch) == self._size
        try:  # most often it is like the last one
            leaves: Any = self._pick(batch) if quick else self._flatten(batch)
            if self._torch_dtypes is None:
                if list(map(_ARRAY, leaves)) == self._kind:
                    return self._copied(leaves)
            elif list(map(_TENSOR, leaves)) == self._kind and all(map(torch.Tensor.is_contiguous, leaves)):
                return self._moved(leaves)
        except (AttributeError, KeyError, RuntimeError):  # a number, another name, a sparse tensor
            pass
        views = [leaf if type(leaf) is np.ndarray else _view(leaf) for leaf in self._flatten(batch)]
        if list(map(_FORM, views)) != self._form:
            self._stage(views)
        return self._copied(views)

    def _flatten(self, batch: PyTree) -> list[Any]:
        leaves, structure = FLATTEN(batch)
        if structure != self.structure:
            raise UsageError(f"expected batches of structure {self.structure}, as the first was; got {structure}.")
        return leaves

    def copies(self, batch: PyTree) -> PyTree:
        """A batch as private NumPy copies; JAX arrays, which nobody can overwrite, stay as they are."""
        views = map(_view, FLATTEN(batch)[0])
        narrowed_ones = [narrowed(v, name) if name else v for v, name in zip(views, self._narrow, strict=True)]
        return self.structure.unflatten([v if isinstance(v, jax.Array) else np.array(v) for v in narrowed_ones])

    def _stage(self, views: list[Any]) -> None:
        """Prepares for batches of the shapes of this one: memory of our own, and what programs see of it."""
        for name, view, dtype in zip(self._names, views, self._dtypes, strict=True):
            if view.dtype != dtype:
                raise UsageError(f"{name}: expected {dtype}, as in the first batch, got {view.dtype}. Cast it.")
        shapes = tuple(view.shape for view in views)
        if shapes not in self._stages:
            if len(self._stages) >= STAGES:
                self._stages.clear()
            given = [isinstance(view, jax.Array) for view in views]
            targets = [
                None if jaxs else memory(v.shape, _jax_dtype(v.dtype)) for v, jaxs in zip(views, given, strict=True)
            ]
            arguments = [None if target is None else window(target) for target in targets]
            form = list(map(_FORM, views))
            plain = not any(given) and not any(self._narrow)
            rooms = list(map(_room, views, targets))
            self._stages[shapes] = shapes, form, self._kinds(form, given), targets, arguments, plain, rooms
        prepared = self._stages[shapes]
        self.shapes, self._form, self._kind, self._targets, self._arguments, self._plain, self._rooms = prepared

    def _kinds(self, form: list[tuple[Any, Any]], given: list[bool]) -> list[tuple]:
        """What the arrays of a batch are, if they are as those of the first were."""
        if self._torch_dtypes is not None:
            dtypes = zip(form, self._torch_dtypes, strict=True)
            return [(torch.Tensor, shape, dtype, True, False) for (shape, _), dtype in dtypes]
        return [] if any(given) else [(np.ndarray, *one) for one in form]

    def _moved(self, leaves: Sequence[torch.Tensor]) -> list[Any]:
        """Copies tensors of the shapes that are prepared for, each in one piece where it may be."""
        for leaf, room, target, name in zip(leaves, self._rooms, self._targets, self._narrow, strict=True):
            if room is None:
                _copy(_view(leaf), target, name)
            else:
                move(room[0], leaf.data_ptr(), room[1])
        return self._arguments

    def _copied(self, views: Sequence[Any]) -> list[Any]:
        """Copies arrays of the shapes that are prepared for."""
        if self._plain:
            for target, view in zip(self._targets, views, strict=True):
                target[...] = view
            return self._arguments
        arguments = []
        for view, name, target, argument in zip(views, self._narrow, self._targets, self._arguments, strict=True):
            if target is not None:
                _copy(view, target, name)
            arguments.append(view if target is None else argument)  # JAX's own, which nobody can overwrite
        return arguments


class Numbers:
    """Learning rates and counts of updates by group, as the compiled function takes them."""

    def __init__(self, groups: int, dtype: np.dtype):
        array = memory((2 * groups,), dtype)
        self.argument = window(array)
        self._view = memoryview(array)  # type: ignore[arg-type]
        self._groups = range(groups)

    def __call__(self, groups: list[dict[str, Any]], counts: list[int]) -> Any:
        for i in self._groups:
            self._view[2 * i] = groups[i]["lr"]  # a tensor too gives its value
            self._view[2 * i + 1] = counts[i]
        return self.argument


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


def _picking(first: PyTree, paths: list[tuple]) -> tuple[Any, int, Callable[[Any], Any]]:
    """Type and size of a dict, tuple or list of arrays, and how to get these in JAX's order; no type for others."""
    flat = isinstance(first, dict | tuple | list) and len(first) == len(paths) and all(len(p) == 1 for p in paths)
    if flat and type(first) is dict and len(first) > 1:
        return dict, len(first), itemgetter(*(path[0].key for path in paths))
    if flat and type(first) in (tuple, list):
        return type(first), len(first), list
    return None, 0, list


def _view(leaf: Any) -> Any:
    """A NumPy or JAX array; nothing is copied if it can be helped."""
    if type(leaf) is np.ndarray or isinstance(leaf, jax.Array):
        return leaf
    if isinstance(leaf, torch.Tensor):
        if leaf.requires_grad and not leaf.is_leaf:
            raise UsageError(
                f"the batch has a tensor of shape {tuple(leaf.shape)} that was computed outside of the loss and still "
                f"has its gradient, which would be lost. Compute it inside of the loss, or detach it."
            )
        try:
            return leaf.numpy(force=True)
        except TypeError:  # a type NumPy has not
            return tensor_to_numpy(leaf, "batch")
    if isinstance(leaf, bool | int | float | complex):
        return np.asarray(leaf, jax.dtypes.canonicalize_dtype(type(leaf)))
    if isinstance(leaf, np.ndarray | np.generic):
        return np.asarray(leaf)
    raise TransferError(
        f"expected tensors, arrays and numbers in a batch, in dicts, lists, tuples or dataclasses; got "
        f"{type(leaf).__name__}. Leave out what the loss does not compute with, and make a dict of an object's tensors."
    )


def _room(view: Any, target: np.ndarray | None) -> tuple[int, int] | None:
    """Address and size of a target, if a tensor may be copied there byte by byte."""
    if target is None or target.dtype != view.dtype or target.size < 2:  # a single number may be a view that negates
        return None
    return target.ctypes.data, target.nbytes


def _copy(view: np.ndarray, target: np.ndarray, narrow: str | None) -> None:
    target[...] = view
    if narrow and not (target == view).all():
        narrowed(view, narrow)  # says what does not fit


def _jax_dtype(dtype: Any) -> Any:
    return jax.dtypes.canonicalize_dtype(dtype) if dtype.kind in "iu" else dtype


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
