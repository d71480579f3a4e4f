"""Gradient clipping by the global norm, in JAX. Twin: clipping_torch.py."""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

EPS = 1e-6  # beside the norm, as torch has it; optax's own clip has none


def clip_by_global_norm(max_norm: float | Float[Array, ""]) -> optax.GradientTransformation:
    """g min(1, max_norm / (|g| + 1e-6)), with |g| over all arrays together: `torch.nn.utils.clip_grad_norm_`."""

    def update(updates, state, params=None):
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(updates)))
        factor = jnp.minimum(1.0, max_norm / (norm + EPS))
        return jax.tree.map(lambda g: g * factor.astype(g.dtype), updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)
