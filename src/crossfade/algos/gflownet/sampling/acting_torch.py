"""How a policy acts, given its noise, in torch. Twin: acting_jax.py."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..batch import MASKED
from ..policy_torch import Policy


def choose(
    logits: Float[Tensor, "*batch actions"],
    mask: Bool[Tensor, "*batch actions"],
    gumbel: Float[Tensor, "*batch actions"],
    explore: Float[Tensor, "*batch"],
    epsilon: float,
    temperature: float,
) -> Int[Tensor, "*batch"]:
    """A draw from the masked softmax of logits / temperature, or a uniform one where `explore` < `epsilon`.

    It is the argmax of the logits plus Gumbel noise. Without a valid action the answer means nothing.
    """
    logits = torch.where((explore < epsilon)[..., None], 1.0, logits / temperature)
    return (logits.masked_fill(~mask, MASKED) + gumbel).argmax(-1)


@torch.no_grad()
def act(
    policy: Policy,
    observation: Float[Tensor, "*batch observation"],
    forward_mask: Bool[Tensor, "*batch actions"],
    gumbel: Float[Tensor, "*batch actions"],
    explore: Float[Tensor, "*batch"],
    epsilon: float,
    temperature: float,
) -> Int[Tensor, "*batch"]:
    """The actions of a policy in a batch of states."""
    return choose(policy.forward_logits(observation), forward_mask, gumbel, explore, epsilon, temperature)
