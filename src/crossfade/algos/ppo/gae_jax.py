"""Generalised advantage estimation (Schulman et al. 2016), in JAX. Twin: gae_torch.py."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def gae(
    reward: Float[Array, "t n"],
    value: Float[Array, "t n"],
    next_value: Float[Array, "t n"],
    terminated: Bool[Array, "t n"],
    truncated: Bool[Array, "t n"],
    gamma: float,
    gae_lambda: float,
    truncation: Literal["bootstrap", "mask", "terminal"] = "bootstrap",
) -> Float[Array, "t n"]:
    """A_t = sum_k (gamma lambda)^k delta_{t+k} up to the end of the episode (Schulman et al. 2016).

    delta = r + gamma V(s') - V(s), without V(s') where the episode terminated. Where it was cut off: `bootstrap` keeps
    V(s'), `terminal` drops it, `mask` makes the step count for nothing.
    """
    ended = terminated | truncated
    final = ended if truncation == "terminal" else terminated
    delta = reward + gamma * jnp.where(final, 0, next_value) - value
    if truncation == "mask":
        delta = jnp.where(truncated, 0, delta)
    trace = gamma * gae_lambda * (~ended).astype(value.dtype)

    def back(advantage: Float[Array, " n"], step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, trace = step
        advantage = delta + trace * advantage
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(value[0]), (delta, trace), reverse=True)[1]
