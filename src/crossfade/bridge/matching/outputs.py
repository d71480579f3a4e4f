"""A model's outputs as named arrays: pairing those of two models, and the difference between them."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ...errors import MappingError
from ...verdict import elementwise, scale
from ..libraries import named_leaves

Outputs = dict[str, np.ndarray]  # by position or key; a single output is named ""


def torch_outputs(result: Any) -> Outputs:
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
            f"{type(result).__name__}. Pass torch_apply(module, x) that returns the tensors to be compared: of a "
            f"distribution its mean and stddev, or its logits."
        )
    return {f"{key}.{k}".strip("."): v for key, part in parts.items() for k, v in output_tensors(part).items()}


def jax_outputs(result: Any) -> dict[str, jax.Array]:
    """The arrays of a JAX model's result by position or key."""
    return named_leaves(result)


def has_keys(result: Any) -> bool:
    """Whether a result contains a dict, whose entries have keys and no meaningful order."""
    paths = (path for path, _ in jax.tree_util.tree_flatten_with_path(result)[0])
    return any(isinstance(part, jax.tree_util.DictKey) for path in paths for part in path)


def pair_outputs(
    torch_side: Outputs, jax_side: dict[str, tuple[int, ...]], keyed: bool, channels_last: bool = False
) -> dict[str, str]:
    """For each torch output the name of the JAX output (given by shape) it is compared with.

    Outputs of the same names are paired by name. A tuple on one side and a named tuple or dataclass on the other are
    paired by position; a dict (`keyed`) never is. Raises where the outputs cannot be the same, whatever the parameters.
    """
    same_names = set(torch_side) == set(jax_side)
    if keyed and not same_names:
        raise MappingError(
            f"expected both models to return the same outputs under the same keys; torch returns "
            f"{_listed(torch_side)}, JAX returns {_listed(jax_side)}. Use the same keys in both, or pass "
            f"jax_apply(model, x) that returns torch's."
        )
    names = dict(zip(torch_side, torch_side if same_names else jax_side, strict=False))
    fits = [
        tuple(n for n in jax_side[name] if n != 1) in {layout.squeeze().shape for layout in _layouts(a, channels_last)}
        for a, name in zip(torch_side.values(), names.values(), strict=False)
    ]
    if len(torch_side) != len(jax_side) or not all(fits):
        raise MappingError(
            f"expected both models to return the same outputs; torch returns "
            f"{[a.shape for a in torch_side.values()]}, JAX returns {list(jax_side.values())}. Return the same arrays "
            f"in the same order from both, or pass jax_apply(model, x) that does."
        )
    if not any(np.isfinite(array).any() for array in torch_side.values()):
        raise MappingError(
            "expected some finite number among the torch module's outputs on the example, got none: nothing could be "
            "compared. Give another example."
        )
    return names


def in_torch_layout(result: Any, jax_result: Any) -> Callable[[Any], dict[str, jax.Array]]:
    """A function that gives results like `jax_result` by the names and in the layout of `result`, which the torch
    module returned for the same weights and input."""
    ours, theirs = torch_outputs(result), jax_outputs(jax_result)
    shapes = {name: array.shape for name, array in theirs.items()}
    names = pair_outputs(ours, shapes, has_keys(result) or has_keys(jax_result), channels_last=True)
    moved = set()
    for name, array in ours.items():
        apart = [_distance(layout, np.asarray(theirs[names[name]]), "none") for layout in _layouts(array, True)]
        if apart[0] > apart[-1]:
            moved.add(name)

    def arrange(jax_result: Any) -> dict[str, jax.Array]:
        found = jax_outputs(jax_result)
        return {
            ours: jnp.moveaxis(found[name], -1, 1) if ours in moved else found[name] for ours, name in names.items()
        }

    return arrange


def _listed(names: Any) -> str:
    return ", ".join(name or "one array" for name in names)


def difference(
    torch_side: Outputs,
    jax_side: Outputs,
    channels_last: bool = False,
    left_out: Literal["none", "torch", "both"] = "none",
) -> float:
    """The largest difference of two results with the same names, each output relative to its scale in torch.

    Axes of size one do not count, and with `channels_last` a JAX output may have torch's second axis last. The same
    infinity or NaN in the same place is no difference. Elements that are not finite in torch, or in either, can be
    `left_out`.
    """
    gaps = (
        min(_distance(layout, jax_side[name], left_out) for layout in _layouts(ours, channels_last))
        for name, ours in torch_side.items()
    )
    return max(gaps, default=math.inf)


def _layouts(ours: np.ndarray, channels_last: bool) -> list[np.ndarray]:
    """The layouts in which JAX may return an output."""
    return [ours, np.moveaxis(ours, 1, -1)] if channels_last and ours.ndim > 2 else [ours]


def _distance(ours: np.ndarray, theirs: np.ndarray, left_out: str) -> float:
    ours, theirs = np.asarray(ours.squeeze()), np.asarray(theirs.squeeze())
    if ours.shape != theirs.shape:
        return math.inf
    if left_out != "none":
        judged = np.isfinite(ours) & (np.isfinite(theirs) if left_out == "both" else True)
        ours, theirs = ours[judged], theirs[judged]
    distance = float(elementwise(ours, theirs).max(initial=0.0))
    unit = min(scale(ours, theirs), float(np.abs(ours).max(where=np.isfinite(ours), initial=0.0)))
    return 0.0 if distance == 0.0 else distance / unit if unit > 0.0 else math.inf
