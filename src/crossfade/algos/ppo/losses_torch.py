"""The objective of PPO in torch. Twin: losses_jax.py."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...nn.categorical_torch import entropy, log_prob_of, log_probs
from .batch import Minibatch
from .config import PPOConfig

Scalar = Float[Tensor, ""]
Vector = Float[Tensor, " n"]


def policy_loss(log_ratio: Vector, advantage: Vector, clip: float) -> Scalar:
    """-E min(rho A, clip(rho, 1 - eps, 1 + eps) A) with rho = pi / pi_old (Schulman et al. 2017)."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def value_loss(value: Vector, old_value: Vector, returns: Vector, clip: float | None) -> Scalar:
    """1/2 E (V - R)^2; clipped, the larger of that and the same for a V held near the OLD value."""
    error = (value - returns).square()
    if clip is not None:
        held = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.maximum(error, (held - returns).square())
    return error.mean() / 2


def loss(network: Any, batch: Minibatch, config: PPOConfig) -> tuple[Scalar, dict[str, Tensor]]:
    """Policy loss, value loss and entropy bonus of a minibatch, and what to log about them."""
    logits, value = network(batch.observation)
    log_p = log_probs(logits, batch.mask, config.floor)
    log_ratio = log_prob_of(log_p, batch.action) - batch.log_prob
    surrogate = policy_loss(log_ratio, batch.advantage, config.clip)
    regression = value_loss(value, batch.value, batch.returns, config.clip_value)
    spread = entropy(log_p, batch.mask).mean()
    total = surrogate + config.value_coef * regression - config.entropy_coef * spread
    ratio = log_ratio.exp()
    return total, {
        "loss": total,
        "policy_loss": surrogate,
        "value_loss": regression,
        "entropy": spread,
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > config.clip).to(total.dtype).mean(),
    }
