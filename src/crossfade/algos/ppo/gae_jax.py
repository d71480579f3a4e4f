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
    """The advantage of every action; with the value added, the return that the critic learns.

    `next_value` is that of the state a step led to, before any reset. Where an episode was cut off, `bootstrap` goes on
    with it, `terminal` takes it as 0 and `mask` gives the step no advantage at all, as Brax does.
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
