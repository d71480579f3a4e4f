"""How a policy acts, given its noise, in JAX. Twin: acting_torch.py."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..batch import MASKED
from ..policy_jax import Policy

Number = float | Float[Array, ""]


def choose(
    logits: Float[Array, "*batch actions"],
    mask: Bool[Array, "*batch actions"],
    gumbel: Float[Array, "*batch actions"],
    explore: Float[Array, "*batch"],
    epsilon: Number,
    temperature: Number,
) -> Int[Array, "*batch"]:
    """A draw from the masked softmax of logits / temperature, or a uniform one where `explore` < `epsilon`.

    It is the argmax of the logits plus Gumbel noise. Without a valid action the answer means nothing.
    """
    explores = (explore < epsilon)[..., None]
    logits = jnp.where(explores, 1.0, logits / temperature)
    return jnp.argmax(jnp.where(mask, logits, MASKED) + gumbel, axis=-1)


def act(
    policy: Policy,
    observation: Float[Array, "*batch observation"],
    forward_mask: Bool[Array, "*batch actions"],
    gumbel: Float[Array, "*batch actions"],
    explore: Float[Array, "*batch"],
    epsilon: Number,
    temperature: Number,
) -> Int[Array, "*batch"]:
    """The actions of a policy in a batch of states."""
    return choose(policy.forward_logits(observation), forward_mask, gumbel, explore, epsilon, temperature)
