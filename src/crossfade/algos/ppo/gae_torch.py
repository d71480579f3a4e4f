"""Generalised advantage estimation (Schulman et al. 2016), in torch. Twin: gae_jax.py."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .config import PPOConfig

Steps = Float[Tensor, "steps envs"]
Flags = Bool[Tensor, "steps envs"]


def gae(
    reward: Steps,
    value: Steps,
    next_value: Steps,
    terminated: Flags,
    truncated: Flags,
    gamma: float,
    gae_lambda: float,
    truncation: Literal["bootstrap", "mask", "terminal"] = "bootstrap",
) -> Steps:
    """A_t = sum_k (gamma lambda)^k delta_{t+k} up to the end of the episode, delta = r + gamma V(s') - V(s).

    V(s') is `next_value`, that of the state before any reset, and 0 where the episode terminated. Where it was cut
    off, `bootstrap` keeps V(s'), `terminal` takes it as 0, and `mask` makes the step's delta 0, as Brax does.
    """
    ended = terminated | truncated
    final = ended if truncation == "terminal" else terminated
    delta = reward + gamma * torch.where(final, 0.0, next_value) - value
    if truncation == "mask":
        delta = torch.where(truncated, 0.0, delta)
    trace = gamma * gae_lambda * (~ended).to(value.dtype)  # torch.where of two numbers would be of float32
    advantage, running = torch.empty_like(delta), torch.zeros_like(delta[0])
    for t in reversed(range(len(delta))):
        running = delta[t] + trace[t] * running
        advantage[t] = running
    return advantage


def ahead(estimate: Steps, terminated: Flags, truncated: Flags, gamma: float, gae_lambda: float) -> Steps:
    """r + gamma v(s') - V(s) with the lambda-return v = V + A: A_t + gamma (1 - lambda) A_{t+1} within an episode."""
    following = torch.cat([estimate[1:], torch.zeros_like(estimate[:1])])
    return estimate + gamma * (1 - gae_lambda) * torch.where(terminated | truncated, 0.0, following)


def estimates(
    reward: Steps, value: Steps, next_value: Steps, terminated: Flags, truncated: Flags, config: PPOConfig
) -> tuple[Steps, Steps]:
    """What every step is weighed by, and the returns that the critic learns, as the config has them."""
    discounts = config.gamma, config.gae_lambda
    estimate = gae(reward, value, next_value, terminated, truncated, *discounts, config.truncation)
    by_returns = config.advantage == "lambda_return"
    return ahead(estimate, terminated, truncated, *discounts) if by_returns else estimate, value + estimate


def normalized(advantage: Float[Tensor, " n"], config: PPOConfig) -> Float[Tensor, " n"]:
    """(A - E A) / (sd(A) + 1e-8) over a minibatch, with the biased deviation; A itself if not so configured."""
    if not config.normalize_advantages:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
