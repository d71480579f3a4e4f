"""A network at work, in torch. Twin: acting_jax.py."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .networks_torch import Network


@torch.no_grad()
def values(
    network: Network, stack: Float[Tensor, "worlds inputs"], fractions: Float[Tensor, "worlds n"]
) -> Float[Tensor, "worlds actions"]:
    """The value of every action: the mean over the fractions, without noise."""
    return network(stack, fractions, None).mean(1)


def greedy(
    network: Network, stack: Float[Tensor, "worlds inputs"], fractions: Float[Tensor, "worlds n"]
) -> Int[Tensor, " worlds"]:
    """The action of the highest value in every game; of equal ones the first."""
    return values(network, stack, fractions).argmax(1)
