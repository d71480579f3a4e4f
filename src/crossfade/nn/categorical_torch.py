"""Choices among legal actions, in torch. Twin: masked_jax.py."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax

ILLEGAL = -1e30  # finite, so that what is never chosen has no NaN in its gradient


def log_probs(
    logits: Float[Tensor, "*batch a"], mask: Bool[Tensor, "*batch a"], floor: float = 0.0
) -> Float[Tensor, "*batch a"]:
    """Log-probabilities over the k legal actions; with a floor f, p' = (1 - f k) p + f for each of them."""
    log_p = log_softmax(logits.masked_fill(~mask, ILLEGAL), -1)
    if floor == 0.0:
        return log_p
    legal = mask.sum(-1, keepdim=True).to(logits.dtype)  # else floor times an integer would be of float32
    mixed = (1 - floor * legal) * log_p.exp() + floor
    return mixed.where(mask, 1.0).log().masked_fill(~mask, ILLEGAL)


def entropy(log_p: Float[Tensor, "*batch a"], mask: Bool[Tensor, "*batch a"]) -> Float[Tensor, "*batch"]:
    """Entropy over legal actions, in nats."""
    return -(log_p.exp() * log_p).where(mask, 0.0).sum(-1)


def choose(log_p: Float[Tensor, "*batch a"], gumbel: Float[Tensor, "*batch a"]) -> Int[Tensor, "*batch"]:
    """argmax of log p + Gumbel noise: a sample of the distribution, or its mode where the noise is 0."""
    return (log_p + gumbel).argmax(-1)


def log_prob_of(log_p: Float[Tensor, "*batch a"], action: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch"]:
    """Log-probability of the actions taken."""
    return torch.gather(log_p, -1, action.long().unsqueeze(-1)).squeeze(-1)
