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
        return self.sample_with_log_prob(outputs, noise)[0]

    def log_prob(self, outputs: Float[Tensor, "*n a"], action: Int[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """log p of the actions taken."""
        return _of(self.log_probs(outputs), action)

    def entropy(self, outputs: Float[Tensor, "*n a"], noise: None = None) -> Float[Tensor, "*n"]:
        """-sum p log p over legal actions, in nats."""
        return _entropy(self.log_probs(outputs), _legal(outputs))

    def sample_with_log_prob(
        self, outputs: Float[Tensor, "*n a"], noise: Float[Tensor, "*n a"]
    ) -> tuple[Int[Tensor, "*n"], Float[Tensor, "*n"]]:
        """`sample` and its `log_prob`, from one softmax."""
        log_p = self.log_probs(outputs)
        action = (log_p + noise).argmax(-1)
        return action, _of(log_p, action)

    def log_prob_and_entropy(
        self, outputs: Float[Tensor, "*n a"], action: Int[Tensor, "*n"], noise: None = None
    ) -> tuple[Float[Tensor, "*n"], Float[Tensor, "*n"]]:
        """`log_prob` and `entropy`, from one softmax."""
        log_p = self.log_probs(outputs)
        return _of(log_p, action), _entropy(log_p, _legal(outputs))

    def mode(self, outputs: Float[Tensor, "*n a"]) -> Int[Tensor, "*n"]:
        """The legal action with the largest logit."""
        return outputs.argmax(-1)

    def executed(self, action: Int[Tensor, "*n"]) -> Int[Tensor, "*n"]:
        """The action itself, of int32."""
        return action.int()


def _legal(outputs: Float[Tensor, "*n a"]) -> Bool[Tensor, "*n a"]:
    return ~(outputs <= ILLEGAL / 2)  # NaN is legal, and so is seen


def _of(log_p: Float[Tensor, "*n a"], action: Int[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return torch.gather(log_p, -1, action.long().unsqueeze(-1)).squeeze(-1)


def _entropy(log_p: Float[Tensor, "*n a"], legal: Bool[Tensor, "*n a"]) -> Float[Tensor, "*n"]:
    return -(log_p.exp() * log_p).where(legal, 0.0).sum(-1)
