"""A model's outputs as named arrays, and how far two sets of them are apart."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np
import torch

from ..errors import MappingError
from .libraries import named_leaves


def torch_outputs(result: Any) -> dict[str, np.ndarray]:
    """Copies of the tensors of a module's result by position or key: a result may be a parameter itself."""
    return {name: tensor.numpy(force=True).copy() for name, tensor in output_tensors(result).items()}


def output_tensors(result: Any) -> dict[str, torch.Tensor]:
    """The tensors of a module's result by position or key."""
    if isinstance(result, torch.Tensor):
        return {"": result}
    if dataclasses.is_dataclass(result):
        parts = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    elif isinstance(result, dict):
        parts = {str(key): result[key] for key in sorted(result)}
    elif isinstance(result, tuple | list):
        parts = dict(zip(getattr(result, "_fields", map(str, range(len(result)))), result, strict=True))
    elif result is None:
        return {}
    else:
        raise MappingError(
            f"expected the torch module to return tensors (or tuples, lists, dicts of them), got "
            f"{type(result).__name__}. Wrap it in a module that returns the tensors to be compared."
        )
    return {f"{key}.{k}".strip("."): v for key, part in parts.items() for k, v in output_tensors(part).items()}


def jax_outputs(result: Any) -> dict[str, jax.Array]:
    """The arrays of a JAX model's result by position or key."""
    return named_leaves(result)


def difference(
    torch_side: dict[str, np.ndarray], jax_side: dict[str, np.ndarray], channels_last: bool = False
) -> float:
    """The largest difference of two results, relative to the largest value of each output; inf where shapes differ.

    Outputs are paired in order, dicts by sorted keys. Axes of size one do not count, and with `channels_last` a JAX
    output may have torch's second axis last.
    """
    if len(torch_side) != len(jax_side):
        return math.inf
    pairs = zip(torch_side.values(), jax_side.values(), strict=True)
    gaps = (min(_distance(layout, theirs) for layout in _layouts(ours, channels_last)) for ours, theirs in pairs)
    return max(gaps, default=math.inf)


def _layouts(ours: np.ndarray, channels_last: bool) -> list[np.ndarray]:
    """The forms in which JAX may return an output."""
    return [ours, np.moveaxis(ours, 1, -1)] if channels_last and ours.ndim > 2 else [ours]


def check_shapes(
    torch_side: dict[str, np.ndarray], jax_side: dict[str, tuple[int, ...]], channels_last: bool = False
) -> None:
    """Raises when two results cannot be the same thing, whatever the parameters."""
    ours = [{layout.squeeze().shape for layout in _layouts(a, channels_last)} for a in torch_side.values()]
    theirs = [tuple(n for n in shape if n != 1) for shape in jax_side.values()]
    if len(ours) != len(theirs) or any(shape not in known for known, shape in zip(ours, theirs, strict=True)):
        raise MappingError(
            f"expected both models to return the same outputs; torch returns "
            f"{[a.shape for a in torch_side.values()]}, JAX returns {list(jax_side.values())}. Return the same arrays "
            f"in the same order from both, or pass jax_apply(model, x) that does."
        )


def _distance(ours: np.ndarray, theirs: np.ndarray) -> float:
    ours, theirs = ours.squeeze(), theirs.squeeze()
    if ours.shape != theirs.shape:
        return math.inf
    if not ours.size:
        return 0.0
    scale = max(float(np.abs(ours).max()), float(np.finfo(np.float32).tiny))
    gap = float(np.abs(ours.astype(np.float64) - theirs).max()) / scale
    return gap if math.isfinite(gap) else math.inf
