"""Categorical distribution over legal actions, in JAX. Twin: categorical_torch.py."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

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

    def masked(self, outputs: Float[Array, "*n a"], mask: Bool[Array, "*n a"] | None) -> Float[Array, "*n a"]:
        """Logits with ILLEGAL where the mask is False."""
        return outputs if mask is None else jnp.where(mask, outputs, ILLEGAL)

    def log_probs(self, outputs: Float[Array, "*n a"]) -> Float[Array, "*n a"]:
        """log p of every action; ILLEGAL for illegal ones."""
        legal, log_p = _legal(outputs), jax.nn.log_softmax(outputs)
        if self.floor:
            rest = 1 - self.floor * legal.sum(-1, keepdims=True, dtype=log_p.dtype)
            log_p = jnp.log(jnp.broadcast_to(rest, log_p.shape) * jnp.exp(log_p) + self.floor)
        return jnp.where(legal, log_p, ILLEGAL)

    def sample(self, outputs: Float[Array, "*n a"], noise: Float[Array, "*n a"]) -> Int[Array, "*n"]:
        """argmax(log p + g) with standard Gumbel noise g."""
        return self.sample_with_log_prob(outputs, noise)[0]

    def log_prob(self, outputs: Float[Array, "*n a"], action: Int[Array, "*n"]) -> Float[Array, "*n"]:
        """log p of the actions taken."""
        return _of(self.log_probs(outputs), action)

    def entropy(self, outputs: Float[Array, "*n a"], noise: None = None) -> Float[Array, "*n"]:
        """-sum p log p over legal actions, in nats."""
        return _entropy(self.log_probs(outputs), _legal(outputs))

    def sample_with_log_prob(
        self, outputs: Float[Array, "*n a"], noise: Float[Array, "*n a"]
    ) -> tuple[Int[Array, "*n"], Float[Array, "*n"]]:
        """`sample` and its `log_prob`, from one softmax."""
        log_p = self.log_probs(outputs)
        action = jnp.argmax(log_p + noise, -1).astype(jnp.int32)
        return action, _of(log_p, action)

    def log_prob_and_entropy(
        self, outputs: Float[Array, "*n a"], action: Int[Array, "*n"], noise: None = None
    ) -> tuple[Float[Array, "*n"], Float[Array, "*n"]]:
        """`log_prob` and `entropy`, from one softmax."""
        log_p = self.log_probs(outputs)
        return _of(log_p, action), _entropy(log_p, _legal(outputs))

    def mode(self, outputs: Float[Array, "*n a"]) -> Int[Array, "*n"]:
        """The legal action with the largest logit."""
        return jnp.argmax(outputs, -1).astype(jnp.int32)

    def executed(self, action: Int[Array, "*n"]) -> Int[Array, "*n"]:
        """The action itself, of int32."""
        return action.astype(jnp.int32)


def _legal(outputs: Float[Array, "*n a"]) -> Bool[Array, "*n a"]:
    return ~(outputs <= ILLEGAL / 2)  # NaN is legal, and so is seen


def _of(log_p: Float[Array, "*n a"], action: Int[Array, "*n"]) -> Float[Array, "*n"]:
    return jnp.take_along_axis(log_p, action[..., None], -1)[..., 0]


def _entropy(log_p: Float[Array, "*n a"], legal: Bool[Array, "*n a"]) -> Float[Array, "*n"]:
    return -jnp.where(legal, jnp.exp(log_p) * log_p, 0).sum(-1)
