"""A network at work, in JAX. Twin: acting_torch.py."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int32

from .networks_jax import Network


def values(
    network: Network, stack: Float[Array, "worlds inputs"], fractions: Float[Array, "worlds n"]
) -> Float[Array, "worlds actions"]:
    """The value of every action: the mean over the fractions, without noise."""
    return network(stack, fractions, None).mean(1)


def greedy(
    network: Network, stack: Float[Array, "worlds inputs"], fractions: Float[Array, "worlds n"]
) -> Int32[Array, " worlds"]:
    """The action of the highest value in every game; of equal ones the first."""
    return jnp.argmax(values(network, stack, fractions), -1).astype(jnp.int32)
