"""Generalised advantage estimation (Schulman et al. 2016), in JAX. Twin: gae_torch.py."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .config import PPOConfig

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


def ahead(estimate: Steps, terminated: Flags, truncated: Flags, gamma: Number, gae_lambda: Number) -> Steps:
    """r + gamma v(s') - V(s) with the lambda-return v = V + A: A_t + gamma (1 - lambda) A_{t+1} within an episode."""
    following = jnp.concatenate([estimate[1:], jnp.zeros_like(estimate[:1])])
    return estimate + gamma * (1 - gae_lambda) * jnp.where(terminated | truncated, 0, following)


def estimates(
    reward: Steps, value: Steps, next_value: Steps, terminated: Flags, truncated: Flags, config: PPOConfig
) -> tuple[Steps, Steps]:
    """What every step is weighed by, and the returns that the critic learns, as the config has them."""
    discounts = config.gamma, config.gae_lambda
    estimate = gae(reward, value, next_value, terminated, truncated, *discounts, config.truncation)
    by_returns = config.advantage == "lambda_return"
    return ahead(estimate, terminated, truncated, *discounts) if by_returns else estimate, value + estimate


def normalized(advantage: Float[Array, " n"], config: PPOConfig) -> Float[Array, " n"]:
    """(A - E A) / (sd(A) + 1e-8) over a minibatch, with the biased deviation; A itself if not so configured."""
    if not config.normalize_advantages:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
