"""How a policy acts, in torch. Twin: acting_jax.py."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..batch import MASKED
from ..policy_torch import Policy


def choose(
    logits: Float[Tensor, "*batch a"],
    mask: Bool[Tensor, "*batch a"],
    gumbel: Float[Tensor, "*batch a"],
    explore: Float[Tensor, "*batch"],
    epsilon: float,
    temperature: float,
) -> Int[Tensor, "*batch"]:
    """A draw from the softmax of logits / temperature, or uniform over valid actions where `explore` < epsilon."""
    logits = torch.where((explore < epsilon)[..., None], 1.0, logits / temperature)
    return (logits.masked_fill(~mask, MASKED) + gumbel).argmax(-1)


@torch.no_grad()
def act(
    policy: Policy,
    observation: Float[Tensor, "*batch o"],
    forward_mask: Bool[Tensor, "*batch a"],
    gumbel: Float[Tensor, "*batch a"],
    explore: Float[Tensor, "*batch"],
    epsilon: float,
    temperature: float,
) -> Int[Tensor, "*batch"]:
    """The policy's actions on observations."""
    return choose(policy.forward_logits(observation), forward_mask, gumbel, explore, epsilon, temperature)
