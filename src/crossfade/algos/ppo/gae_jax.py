"""Generalised advantage estimation (Schulman et al. 2016), in JAX. Twin: gae_torch.py."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Steps = Float[Array, "steps envs"]
Flags = Bool[Array, "steps envs"]
Number = float | Float[Array, ""]


def gae(
    reward: Steps,
    value: Steps,
    next_value: Steps,
    terminated: Flags,
    truncated: Flags,
    gamma: Number,
    gae_lambda: Number,
    truncation: Literal["bootstrap", "mask", "terminal"] = "bootstrap",
) -> Steps:
    """A_t = sum_k (gamma lambda)^k delta_{t+k} up to the end of the episode, delta = r + gamma V(s') - V(s).

    V(s') is `next_value`, that of the state before any reset, and 0 where the episode terminated. Where it was cut
    off, `bootstrap` keeps V(s'), `terminal` takes it as 0, and `mask` makes the step's delta 0, as Brax does.
    """
    ended = terminated | truncated
    final = ended if truncation == "terminal" else terminated
    delta = reward + gamma * jnp.where(final, 0, next_value) - value
    if truncation == "mask":
        delta = jnp.where(truncated, 0, delta)
    trace = gamma * gae_lambda * (~ended).astype(value.dtype)

    def back(advantage: Float[Array, " envs"], step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, trace = step
        advantage = delta + trace * advantage
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(value[0]), (delta, trace), reverse=True)[1]
