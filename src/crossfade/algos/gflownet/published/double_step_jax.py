"""A published fault, on request: the shared trunk stands twice in the optimiser's list of parameters, in JAX.

torch's Adam then steps it twice per update with one gradient, its step count going up by 2, and clipping counts and
scales it twice. The learning rate's schedule counts updates, as always.
"""

from collections.abc import Hashable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from ....nn.layers_jax import name
from ..config import GFlowNetConfig


def double_step(config: GFlowNetConfig) -> optax.GradientTransformation:
    """The optimiser of optimizer_jax.py with that fault."""

    def rated(scale: optax.GradientTransformation, lr: float) -> optax.GradientTransformation:
        schedule = lambda count: lr * config.lr_gamma ** (jnp.asarray(count) // config.lr_period)
        return optax.chain(scale, optax.scale_by_learning_rate(schedule))

    groups: dict[Hashable, optax.GradientTransformation] = {
        "trunk": rated(scale_by_adam_twice(), config.lr),
        "heads": rated(optax.scale_by_adam(), config.lr),
        "log_z": rated(optax.scale_by_adam(), config.lr_z),
    }
    step = optax.partition(groups, lambda tree: jax.tree_util.tree_map_with_path(lambda path, _: _group(path), tree))
    return step if config.clip_norm is None else optax.chain(_clip(config.clip_norm), step)


def scale_by_adam_twice() -> optax.GradientTransformation:
    """Two steps of Adam with the same gradient. The state counts updates; Adam's own count is twice that."""
    adam: Any = optax.scale_by_adam()

    def update(updates: PyTree, state: Any, params: PyTree = None) -> tuple[PyTree, Any]:
        inner = state._replace(count=2 * state.count)
        first, inner = adam.update(updates, inner)
        second, inner = adam.update(updates, inner)
        return jax.tree.map(jnp.add, first, second), inner._replace(count=state.count + 1)

    return optax.GradientTransformation(adam.init, update)


def _clip(max_norm: float) -> optax.GradientTransformation:
    """torch's `clip_grad_norm_` over the networks with the trunk in the list twice."""

    def update(updates, state, params=None):
        leaves = jax.tree_util.tree_leaves_with_path(updates)
        norm = jnp.sqrt(sum(_times(path) * jnp.sum(g * g) for path, g in leaves))
        factor = jnp.minimum(1.0, max_norm / (norm + 1e-6))

        def scaled(path: tuple, g: Array) -> Array:
            return g * factor.astype(g.dtype) ** _times(path)

        return jax.tree_util.tree_map_with_path(scaled, updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _group(path: tuple) -> str:
    first = name(path).split(".")[0]
    return first if first in ("trunk", "log_z") else "heads"


def _times(path: tuple) -> int:
    """How often a parameter stands in the list of those that are clipped."""
    return {"trunk": 2, "heads": 1, "log_z": 0}[_group(path)]
