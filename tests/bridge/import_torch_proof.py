"""A torch function and the JAX function made of it: their values and gradients, side by side."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor, nn

from crossfade import bridge
from crossfade.bridge.from_torch.tree import leaves, mapped


def difference(function: Callable[..., Any], *args: Any, key: jax.Array | None = None) -> tuple[float, float]:
    """The largest relative difference of any value, and of any gradient of a random sum of all of them."""
    values, grads = torch_side(function, *args, key=key)
    found, found_grads = jax_side(function, *args, key=key)
    return apart(values, found), apart(grads, found_grads)


def torch_side(function: Callable[..., Any], *args: Any, key: jax.Array | None) -> tuple[dict, dict]:
    """Values by path, and gradients of every floating tensor by path and name."""
    copies = mapped(lambda path, leaf: _leaf(leaf), args)
    inputs = {path: leaf for path, leaf in _tensors(copies).items() if leaf.requires_grad}
    fresh = mapped(lambda path, leaf: leaf.clone() if isinstance(leaf, Tensor) and leaf.requires_grad else leaf, copies)
    if key is None:
        result = function(*fresh)
    else:
        with bridge.random_stream(key):
            result = function(*fresh)
    outs = {path: leaf for path, leaf in leaves(result) if isinstance(leaf, Tensor)}
    total = sum((weighted(out).sum() for out in outs.values() if out.is_floating_point()), torch.zeros(()))
    grads = [None] * len(inputs)
    if isinstance(total, Tensor) and total.requires_grad:
        grads = torch.autograd.grad(total, list(inputs.values()), allow_unused=True)
    zeros = {path: torch.zeros_like(x) if g is None else g for (path, x), g in zip(inputs.items(), grads, strict=True)}
    as_numpy = lambda tensors: {path: x.detach().numpy() for path, x in tensors.items()}
    return as_numpy(outs), as_numpy(zeros)


def jax_side(function: Callable[..., Any], *args: Any, key: jax.Array | None) -> tuple[dict, dict]:
    imported = bridge.import_torch(function, *args)
    given = mapped(lambda path, leaf: _given(imported, leaf), args)
    names = [path for path, x in leaves(given) if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jnp.floating)]
    inputs = {path: x for path, x in leaves(given) if path in names}

    def total(inputs: dict[str, jax.Array]) -> tuple[jax.Array, dict[str, jax.Array]]:
        filled = mapped(lambda path, leaf: inputs.get(path, leaf), given)
        result = imported(*filled, key=key) if key is not None else imported(*filled)
        outs = {path: leaf for path, leaf in leaves(result) if isinstance(leaf, jax.Array)}
        terms = [weighted(x).sum() for x in outs.values() if jnp.issubdtype(x.dtype, jnp.floating)]
        return sum(terms, jnp.zeros(())), outs

    (_, outs), grads = jax.jit(jax.value_and_grad(total, has_aux=True))(inputs)
    as_numpy = lambda arrays: {path: np.asarray(x) for path, x in arrays.items()}
    return as_numpy(outs), as_numpy(grads)


def weighted(x: Any) -> Any:
    """Each element times its own weight, the same in both frameworks; those that are not finite are left out."""
    weights = np.asarray(np.cos(np.arange(int(np.prod(x.shape)))).reshape(tuple(x.shape)) + 1.5)
    if isinstance(x, Tensor):
        return torch.where(x.isfinite(), x, 0) * torch.from_numpy(weights).to(x.dtype)
    return jnp.where(jnp.isfinite(x), x, 0) * jnp.asarray(weights, x.dtype)


def apart(ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    """The largest difference, relative to the scale of each array; another set, shape, dtype or NaN is infinite."""
    assert set(ours) == set(theirs), (sorted(ours), sorted(theirs))
    worst = 0.0
    for path, a in ours.items():
        b = theirs[path]
        assert a.shape == b.shape and a.dtype == b.dtype, (path, a.shape, b.shape, a.dtype, b.dtype)
        same = (a == b) | (np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else False)
        if not same.all():
            scale = max(np.abs(np.where(np.isfinite(a), a, 0)).max(initial=0), 1e-300) if a.dtype.kind == "f" else 0
            gap = np.abs(np.where(same, 0, a.astype(float) - np.where(same, 0, b)))
            worst = max(worst, float(np.where(np.isnan(gap), np.inf, gap).max()) / scale if scale else np.inf)
    return worst


def _leaf(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.detach().clone().requires_grad_(leaf.is_floating_point())
    return leaf


def _tensors(tree: Any) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for path, leaf in leaves(tree):
        if isinstance(leaf, nn.Module):
            found |= {f"{path}.{name}": tensor for name, tensor in leaf.named_parameters()}
        elif isinstance(leaf, Tensor):
            found[path] = leaf
    return found


def _given(imported: bridge.ImportedFunction, leaf: Any) -> Any:
    if isinstance(leaf, nn.Module):
        return imported.params(leaf)
    return bridge.to_jax(leaf.detach()) if isinstance(leaf, Tensor) else leaf
