"""Categorical distributions over legal actions, in JAX. Twin: masked_torch.py."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Int32

ILLEGAL = -1e30
"""Log-probability of an action the mask forbids: finite, so that gradients are."""


def log_probs(logits: Float[Array, "*n a"], mask: Bool[Array, "*n a"], floor: float = 0.0) -> Float[Array, "*n a"]:
    """Log-probabilities over the k legal actions; with a floor f, p' = (1 - f k) p + f for each of them."""
    log_p = jax.nn.log_softmax(jnp.where(mask, logits, ILLEGAL))
    if floor:
        rest = 1 - floor * mask.sum(-1, keepdims=True)
        log_p = jnp.log(jnp.broadcast_to(rest, mask.shape) * jnp.exp(log_p) + floor)
    return jnp.where(mask, log_p, ILLEGAL)


def entropy(log_p: Float[Array, "*n a"], mask: Bool[Array, "*n a"]) -> Float[Array, "*n"]:
    """Entropy over legal actions, in nats."""
    return -jnp.where(mask, jnp.exp(log_p) * log_p, 0).sum(-1)


def choose(log_p: Float[Array, "*n a"], gumbel: Float[Array, "*n a"]) -> Int32[Array, "*n"]:
    """argmax of log p + Gumbel noise: a sample of the distribution, or its mode where the noise is 0."""
    return jnp.argmax(log_p + gumbel, -1).astype(jnp.int32)


def log_prob_of(log_p: Float[Array, "*n a"], action: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Log-probability of the actions taken."""
    return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]
