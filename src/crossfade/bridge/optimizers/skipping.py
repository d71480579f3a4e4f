"""Parameters that torch skips.

torch leaves a parameter without a gradient (`grad is None`) alone: no decay, no moments, no count. JAX gives such a
parameter a gradient of zeros, which is also what a used parameter may have (below an output layer that begins at zero),
and that one torch counts and decays. The two look alike, so what torch has done so far decides:

    torch's count of updates is                    gradients of zeros
    that of the optimiser                          are gradients like any other
    behind it, so torch has skipped it before      are no gradient: `skipping_zeros`
    0, as nothing was updated yet                  count, but there is no decay before the first other one: `watching`
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, PyTree

from ..libraries import leaf_names, named_leaves

Entries = Mapping[str, int]  # leaf -> the entry of the mapping it belongs to: torch has one gradient for all its leaves


class WatchingState(NamedTuple):
    """Which leaves have had a gradient other than zeros, and the state of what is watched."""

    used: PyTree  # of Bool[Array, ""]
    inner: PyTree


def watching(inner: optax.GradientTransformation, entries: Entries) -> optax.GradientTransformation:
    """`inner`, whose weight decay passes over leaves that have not been used yet."""

    def update(updates, state, params=None):
        now = _nonzero(updates, entries)
        used = jax.tree.map(lambda path, before: before | now[path], leaf_names(state.used), state.used)
        if params is not None:  # these transformations look at parameters to decay them, and for nothing else
            params = jax.tree.map(lambda used, p: jnp.where(used, p, jnp.zeros_like(p)), used, params)
        updates, after = inner.update(updates, state.inner, params)
        return updates, WatchingState(used, after)

    init = lambda params: WatchingState(jax.tree.map(lambda _: jnp.array(False), params), inner.init(params))
    return optax.GradientTransformation(init, update)


class SkippingState(NamedTuple):
    """The updates each leaf has had, one number for all of them, and the state of what is skipped at times."""

    step: PyTree  # of Int[Array, ""]
    inner: PyTree


def skipping_zeros(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """`inner` for the leaves of one entry, of which nothing moves when all gradients are zero."""

    def update(updates, state, params=None):
        used = next(iter(_nonzero(updates, dict.fromkeys(named_leaves(updates), 0)).values()))
        change, after = inner.update(updates, state.inner, params)
        pick = lambda new, old: jnp.where(used, new, old)
        step = jax.tree.map(lambda n: n + used.astype(n.dtype), state.step)
        change = jax.tree.map(lambda u: pick(u, jnp.zeros_like(u)), change)
        return change, SkippingState(step, jax.tree.map(pick, after, state.inner))

    init = lambda params: SkippingState(jax.tree.map(lambda _: jnp.zeros([], jnp.int32), params), inner.init(params))
    return optax.GradientTransformation(init, update)


def _nonzero(updates: PyTree, entries: Entries) -> dict[str, Bool[Array, ""]]:
    """For each leaf, whether any gradient of its entry is other than zero."""
    found: dict[int, Bool[Array, ""]] = {}
    leaves = named_leaves(updates)
    for path, gradient in leaves.items():
        found[entries[path]] = found.get(entries[path], jnp.array(False)) | jnp.any(gradient != 0)
    return {path: found[entries[path]] for path in leaves}
