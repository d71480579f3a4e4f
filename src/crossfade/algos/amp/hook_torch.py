"""Adversarial motion priors as a hook of PPO, in torch. Twin: hook_jax.py."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...nn.distribution import Distribution
from ..ppo.architecture import Architecture
from ..ppo.hook import Watched
from . import losses_torch
from .batch import Transitions
from .config import AMPConfig
from .discriminator_torch import StyledActorCritic
from .style import Style


class StyleHook(Style):
    """The style of a reference motion, learned by a discriminator beside PPO's network."""

    def make_network(
        self, observation_dim: int, actions: Distribution, architecture: Architecture
    ) -> StyledActorCritic:
        return StyledActorCritic(observation_dim, actions, architecture, self.inputs, self.config.hidden)

    def make_optimizer(self, policy: StyledActorCritic) -> torch.optim.Adam:
        return torch.optim.Adam(policy.discriminator.parameters(), lr=self.config.lr)

    def loss(self, policy: StyledActorCritic, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        return losses_torch.loss(policy.discriminator, batch, self.config)

    @torch.no_grad()
    def reward(
        self, policy: StyledActorCritic, watched: Watched, reward: Float[np.ndarray, "steps envs"]
    ) -> tuple[Float[np.ndarray, "steps envs"], dict[str, float]]:
        x, earned = torch.from_numpy(self.transitions(watched)), torch.from_numpy(reward)
        mixed, info = mixed_reward(policy.discriminator, x, earned, self.config)
        return mixed.numpy(), {name: float(value) for name, value in info.items()}


def mixed_reward(
    discriminator: nn.Module,
    x: Float[Tensor, "steps envs x"],
    reward: Float[Tensor, "steps envs"],
    config: AMPConfig,
) -> tuple[Float[Tensor, "steps envs"], dict[str, Float[Tensor, ""]]]:
    """The rewards of transitions with their style in them, and their means."""
    style = losses_torch.style_reward(discriminator(x), config.convention)
    mixed = config.task_weight * reward + config.style_weight * style
    return mixed, {"style_reward": style.mean(), "mixed_reward": mixed.mean()}
