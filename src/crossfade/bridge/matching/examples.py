"""The example that both models are run on: as tensors, as JAX arrays, and in the layouts a JAX model may want."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.utils._pytree import tree_leaves, tree_map

from ...errors import UsageError
from ..transfer import tensor_to_numpy
from .draws import is_continuous


def check_rows(example: Any) -> None:
    """Raises on an empty batch."""
    shapes = [tuple(leaf.shape) for leaf in tree_leaves(example) if isinstance(leaf, torch.Tensor | np.ndarray)]
    if empty := [shape for shape in shapes if shape[:1] == (0,)]:
        raise UsageError(
            f"expected an example with at least one row, got an input of shape {empty[0]}: the outputs on an empty "
            f"batch are equal whatever the models compute."
        )


def to_tensors(example: Any, dtype: torch.dtype) -> Any:
    """Arrays and tensors as tensors on the CPU, floating ones of this type; whatever else as it is."""

    def move(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor | np.ndarray | jax.Array):
            return leaf
        tensor = leaf if isinstance(leaf, torch.Tensor) else torch.tensor(np.asarray(leaf))
        return tensor.detach().cpu().to(dtype) if tensor.is_floating_point() else tensor.detach().cpu().clone()

    return tree_map(move, example)


def to_arrays(example: Any) -> Any:
    """Arrays, tensors and numbers as JAX arrays, floating ones in float64."""

    def move(leaf: Any) -> Any:
        array = tensor_to_numpy(leaf) if isinstance(leaf, torch.Tensor) else np.asarray(leaf)
        return jnp.asarray(array.astype(np.float64) if jnp.issubdtype(array.dtype, jnp.floating) else array)

    return jax.tree.map(move, example, is_leaf=_is_tensor)


def as_given(example: Any) -> Any:
    """The same with NumPy arrays for tensors: what a user would give to a JAX model."""
    return jax.tree.map(lambda v: tensor_to_numpy(v) if _is_tensor(v) else v, example, is_leaf=_is_tensor)


def scaled(args: Any, factor: float) -> Any:
    """Tensors times a factor, but for flags, counts and pixels."""
    scale = lambda t: factor * t if _is_tensor(t) and t.ndim and is_continuous(tensor_to_numpy(t)) else t
    return args if factor == 1.0 else tree_map(scale, args)


def layouts(module: nn.Module, example: Any, channels_first: bool) -> list[Any]:
    """The examples that a JAX model may want for torch's: None for the same, and one with the channels of images last.

    The likelier comes first; `channels_first` says which. An example is also given where only outputs are images.
    """
    given = as_given(example)
    most = max((np.ndim(leaf) for leaf in jax.tree.leaves(given)), default=0)
    if not any(isinstance(child, _ConvNd) for child in module.modules()):
        return [None]
    if most < 3:
        return [None if channels_first else given]
    last: Callable[[Any], Any] = lambda leaf: np.moveaxis(leaf, 1, -1) if np.ndim(leaf) == most else leaf
    moved = jax.tree.map(last, given)
    return [None, moved] if channels_first else [moved, None]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)
