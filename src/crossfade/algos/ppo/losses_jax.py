"""The losses of PPO (Schulman et al. 2017), in JAX. Twin: losses_torch.py."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...nn.distribution import Distribution
from .batch import Minibatch
from .config import PPOConfig
from .gae_jax import estimates, normalized
from .network_jax import ActorCritic

Scalar = Float[Array, ""]
Vector = Float[Array, " n"]
Number = float | Scalar


def policy_loss(log_ratio: Vector, advantage: Vector, clip: Number) -> Scalar:
    """-E min(r A, clip(r, 1 - eps, 1 + eps) A) with r = pi / pi_old."""
    ratio = jnp.exp(log_ratio)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()


def value_loss(value: Vector, old_value: Vector, returns: Vector, clip: Number | None) -> Scalar:
    """1/2 E (V - R)^2; with a clip, of the larger error of V and V_old + clip(V - V_old, -eps, eps)."""
    error = jnp.square(value - returns)
    if clip is not None:
        near = old_value + jnp.clip(value - old_value, -clip, clip)
        error = jnp.maximum(error, jnp.square(near - returns))
    return 0.5 * error.mean()


def explained_variance(value: Vector, returns: Vector) -> Scalar:
    """1 - Var(R - V) / Var(R): 1 where V tells all returns, 0 where no more than their mean; 0 where they are equal."""
    variance = returns.var()
    explained = 1 - (returns - value).var() / jnp.where(variance > 0, variance, 1)
    return jnp.where(variance > 0, explained, 0)


def revalued(batch: Minibatch, value: Vector, last: Float[Array, " envs"], config: PPOConfig) -> Minibatch:
    """The minibatch with the advantages and returns by these values of its steps and after its segments."""
    segment = batch.segment
    assert segment is not None
    rows = lambda column: jax.lax.stop_gradient(column).reshape(-1, len(last))
    values, last = rows(value), jax.lax.stop_gradient(last)
    following = jnp.concatenate([values[1:], last[None]])
    reward, terminated, truncated = rows(segment.reward), rows(segment.terminated), rows(segment.truncated)
    advantage, returns = estimates(reward, values, following, terminated, truncated, config)
    return batch._replace(advantage=normalized(advantage.reshape(-1), config), returns=returns.reshape(-1))


def loss(
    network: ActorCritic, batch: Minibatch, actions: Distribution, config: PPOConfig
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
    ratio = jnp.exp(log_ratio)
    return total, {
        "loss": total,
        "policy_loss": surrogate,
        "value_loss": regression,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": (jnp.abs(ratio - 1) > config.clip).mean(dtype=value.dtype),
    }
