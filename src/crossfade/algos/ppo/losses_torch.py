"""The losses of PPO (Schulman et al. 2017), in torch. Twin: losses_jax.py."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...nn.distribution import Distribution
from .batch import Minibatch
from .config import PPOConfig
from .gae_torch import estimates, normalized

Scalar = Float[Tensor, ""]
Vector = Float[Tensor, " n"]


def policy_loss(log_ratio: Vector, advantage: Vector, clip: float) -> Scalar:
    """-E min(r A, clip(r, 1 - eps, 1 + eps) A) with r = pi / pi_old."""
    ratio = log_ratio.exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def value_loss(value: Vector, old_value: Vector, returns: Vector, clip: float | None) -> Scalar:
    """1/2 E (V - R)^2; with a clip, of the larger error of V and V_old + clip(V - V_old, -eps, eps)."""
    error = (value - returns).square()
    if clip is not None:
        near = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.maximum(error, (near - returns).square())
    return 0.5 * error.mean()


def explained_variance(value: Vector, returns: Vector) -> Scalar:
    """1 - Var(R - V) / Var(R): 1 where V tells all returns, 0 where no more than their mean; 0 where they are equal."""
    variance = returns.var(correction=0)
    explained = 1 - (returns - value).var(correction=0) / torch.where(variance > 0, variance, 1)
    return torch.where(variance > 0, explained, 0)


def revalued(batch: Minibatch, value: Vector, last: Float[Tensor, " envs"], config: PPOConfig) -> Minibatch:
    """The minibatch with the advantages and returns by these values of its steps and after its segments."""
    segment = batch.segment
    assert segment is not None
    rows = lambda column: column.detach().reshape(-1, len(last))
    values, last = rows(value), last.detach()
    following = torch.cat([values[1:], last[None]])
    reward, terminated, truncated = rows(segment.reward), rows(segment.terminated), rows(segment.truncated)
    advantage, returns = estimates(reward, values, following, terminated, truncated, config)
    return batch._replace(advantage=normalized(advantage.reshape(-1), config), returns=returns.reshape(-1))


def loss(
    network: nn.Module, batch: Minibatch, actions: Distribution, config: PPOConfig
) -> tuple[Scalar, dict[str, Scalar]]:
    """Policy loss + value_coef * value loss - entropy_coef * entropy of a minibatch, and what to log about it.

    `approx_kl` estimates KL(pi_old | pi) by E (r - 1 - log r) (Schulman 2020). Advantages of segments are made here.
    """
    outputs, value = network(batch.observation)
    if batch.segment is not None:
        batch = revalued(batch, value, network(batch.segment.last)[1], config)
    outputs = actions.masked(outputs, batch.mask)
    log_prob, entropies = actions.log_prob_and_entropy(outputs, batch.action, batch.noise)
    log_ratio = log_prob - batch.log_prob
    surrogate = policy_loss(log_ratio, batch.advantage, config.clip)
    regression = value_loss(value, batch.value, batch.returns, config.clip_value)
    entropy = entropies.mean()
    total = surrogate + config.value_coef * regression - config.entropy_coef * entropy
    ratio = log_ratio.exp()
    return total, {
        "loss": total,
        "policy_loss": surrogate,
        "value_loss": regression,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": ((ratio - 1).abs() > config.clip).to(value.dtype).mean(),
    }
