"""A policy at work, in JAX. Twin: acting_torch.py."""

from dataclasses import dataclass
from functools import partial

import jax
from jaxtyping import Array, Bool, Float, Shaped

from ...nn.distribution import Distribution
from .batch import Decision
from .network_jax import ActorCritic


@partial(jax.tree_util.register_dataclass, data_fields=["policy"], meta_fields=["actions"])
@dataclass(frozen=True)
class Actor:
    """A network and the action distribution that it describes. Observations are as the network sees them."""

    policy: ActorCritic
    actions: Distribution

    def act(
        self, observation: Float[Array, "n o"], mask: Bool[Array, "n a"] | None, noise: Float[Array, "n d"]
    ) -> Decision:
        """An action for each state, sampled from its distribution by the given noise."""
        outputs, value = self.policy(observation)
        outputs = self.actions.masked(outputs, mask)
        action, log_prob = self.actions.sample_with_log_prob(outputs, noise)
        return Decision(action, self.actions.executed(action), log_prob, value)

    def greedy(self, observation: Float[Array, "n o"], mask: Bool[Array, "n a"] | None) -> Shaped[Array, "n ..."]:
        """The most probable action of each state, as the world is given it."""
        outputs = self.actions.masked(self.policy(observation)[0], mask)
        return self.actions.executed(self.actions.mode(outputs))

    def value(self, observation: Float[Array, "n o"]) -> Float[Array, " n"]:
        """The value of each state."""
        return self.policy(observation)[1]
