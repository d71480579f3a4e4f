"""The losses of PPO (Schulman et al. 2017), in JAX. Twin: losses_torch.py."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...nn.categorical_jax import entropy, log_prob_of, log_probs
from .batch import Minibatch
from .config import PPOConfig
from .network_jax import ActorCritic


def policy_loss(log_ratio: Float[Array, " n"], advantage: Float[Array, " n"], clip: float) -> Float[Array, ""]:
    """-E min(rho A, clip(rho, 1 - eps, 1 + eps) A) with rho = pi / pi_old (Schulman et al. 2017)."""
    ratio = jnp.exp(log_ratio)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage).mean()


def value_loss(
    value: Float[Array, " n"], old_value: Float[Array, " n"], returns: Float[Array, " n"], clip: float | None
) -> Float[Array, ""]:
    """1/2 E (V - R)^2; clipped, the larger of that and the same for a V held near the OLD value."""
    error = jnp.square(value - returns)
    if clip is not None:
        near = old_value + jnp.clip(value - old_value, -clip, clip)
        error = jnp.maximum(error, jnp.square(near - returns))
    return 0.5 * error.mean()


def loss(
    network: ActorCritic, batch: Minibatch, config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Policy loss, value loss and entropy bonus of a minibatch, and what to log about them."""
    logits, value = network(batch.observation)
    log_p = log_probs(logits, batch.mask, config.floor)
    log_ratio = log_prob_of(log_p, batch.action) - batch.log_prob
    policy = policy_loss(log_ratio, batch.advantage, config.clip)
    critic = value_loss(value, batch.value, batch.returns, config.clip_value)
    spread = entropy(log_p, batch.mask).mean()
    total = policy + config.value_coef * critic - config.entropy_coef * spread
    ratio = jnp.exp(log_ratio)
    return total, {
        "loss": total,
        "policy_loss": policy,
        "value_loss": critic,
        "entropy": spread,
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": (jnp.abs(ratio - 1) > config.clip).mean(dtype=value.dtype),
    }
