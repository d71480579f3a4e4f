"""Categorical distribution over legal actions, in torch. Twin: categorical_jax.py."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax

ILLEGAL = -1e30
"""Logit and log-probability of an illegal action: finite, so that gradients are."""


@dataclass(frozen=True)
class Categorical:
    """One of `n` actions, p = softmax(logits) over the legal ones; `Distribution` says what its methods are.

    Illegal actions have the logit ILLEGAL, and p = 0. With a floor f each of the k legal actions has at least
    probability f: p' = (1 - f k) p + f.
    """

    n: int
    floor: float = 0.0

    @property
    def n_outputs(self) -> int:
        return self.n

    @property
    def n_free(self) -> int:
        return 0

    @property
    def noise(self) -> Literal["gumbel"]:
        return "gumbel"

    @property
    def noise_dim(self) -> int:
        return self.n

    def masked(self, outputs: Float[Tensor, "*n a"], mask: Bool[Tensor, "*n a"] | None) -> Float[Tensor, "*n a"]:
        """Logits with ILLEGAL where the mask is False."""
        return outputs if mask is None else outputs.masked_fill(~mask, ILLEGAL)

    def log_probs(self, outputs: Float[Tensor, "*n a"]) -> Float[Tensor, "*n a"]:
        """log p of every action; ILLEGAL for illegal ones."""
        legal, log_p = _legal(outputs), log_softmax(outputs, -1)
        if self.floor:
            rest = 1 - self.floor * legal.sum(-1, keepdim=True).to(log_p.dtype)
            log_p = (rest * log_p.exp() + self.floor).log()
        return log_p.masked_fill(~legal, ILLEGAL)

    def sample(self, outputs: Float[Tensor, "*n a"], noise: Float[Tensor, "*n a"]) -> Int[Tensor, "*n"]:
        """argmax(log p + g) with standard Gumbel noise g."""
        return (self.log_probs(outputs) + noise).argmax(-1)

    def log_prob(self, outputs: Float[Tensor, "*n a"], action: Int[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """log p of the actions taken."""
        return torch.gather(self.log_probs(outputs), -1, action.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self, outputs: Float[Tensor, "*n a"]) -> Float[Tensor, "*n"]:
        """-sum p log p over legal actions, in nats."""
        log_p = self.log_probs(outputs)
        return -(log_p.exp() * log_p).where(_legal(outputs), 0.0).sum(-1)

    def mode(self, outputs: Float[Tensor, "*n a"]) -> Int[Tensor, "*n"]:
        """The legal action with the largest logit."""
        return outputs.argmax(-1)

    def executed(self, action: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """The action itself, of int32."""
        return action.int()


def _legal(outputs: Float[Tensor, "*n a"]) -> Bool[Tensor, "*n a"]:
    return ~(outputs <= ILLEGAL / 2)  # NaN is legal, and so is seen
