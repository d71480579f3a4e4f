"""A policy at work, in torch. Twin: acting_jax.py."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from ...nn.distribution import Distribution
from .batch import Decision
from .network_torch import ActorCritic


@dataclass(frozen=True)
class Actor:
    """A network and the action distribution that it describes. Observations are as the network sees them."""

    policy: ActorCritic
    actions: Distribution

    @torch.no_grad()
    def act(
        self,
        observation: Float[np.ndarray, "n o"],
        mask: Bool[np.ndarray, "n a"] | None,
        noise: Float[np.ndarray, "n d"],
    ) -> Decision:
        """An action for each state, sampled from its distribution by the given noise."""
        outputs, value = self.policy(torch.from_numpy(observation))
        outputs = self._masked(outputs, mask)
        action, log_prob = self.actions.sample_with_log_prob(outputs, torch.from_numpy(noise))
        found = action, self.actions.executed(action), log_prob, value
        return Decision(*(tensor.numpy() for tensor in found))

    @torch.no_grad()
    def greedy(
        self, observation: Float[np.ndarray, "n o"], mask: Bool[np.ndarray, "n a"] | None
    ) -> Shaped[np.ndarray, "n ..."]:
        """The most probable action of each state, as the world is given it."""
        outputs = self._masked(self.policy(torch.from_numpy(observation))[0], mask)
        return self.actions.executed(self.actions.mode(outputs)).numpy()

    @torch.no_grad()
    def value(self, observation: Float[np.ndarray, "n o"]) -> Float[np.ndarray, " n"]:
        """The value of each state."""
        return self.policy(torch.from_numpy(observation))[1].numpy()

    def _masked(self, outputs: Float[Tensor, "n outputs"], mask: np.ndarray | None) -> Float[Tensor, "n outputs"]:
        return self.actions.masked(outputs, None if mask is None else torch.from_numpy(mask))
