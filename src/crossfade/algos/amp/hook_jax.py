"""Adversarial motion priors as a hook of PPO, in JAX. Twin: hook_torch.py. In compiled loops: compiled_jax.py."""

import jax
import numpy as np
import optax
from jaxtyping import Array, Float

from ...nn.distribution import Distribution
from ...optim.masking_jax import only
from ..ppo.architecture import Architecture
from ..ppo.hook import Watched
from . import losses_jax
from .batch import Transitions
from .config import AMPConfig
from .discriminator_jax import Discriminator, StyledActorCritic
from .style import Style


class StyleHook(Style):
    """The style of a reference motion, learned by a discriminator beside PPO's network."""

    def make_network(
        self, observation_dim: int, actions: Distribution, architecture: Architecture
    ) -> StyledActorCritic:
        return StyledActorCritic(observation_dim, actions, architecture, self.inputs, self.config.hidden)

    def make_optimizer(self, policy: StyledActorCritic) -> optax.GradientTransformation:
        return only(optax.adam(self.config.lr), self.names)

    def loss(self, policy: StyledActorCritic, batch: Transitions) -> tuple[Array, dict[str, Array]]:
        return losses_jax.loss(policy.discriminator, batch, self.config)

    def reward(
        self, policy: StyledActorCritic, watched: Watched, reward: Float[np.ndarray, "steps envs"]
    ) -> tuple[Float[np.ndarray, "steps envs"], dict[str, float]]:
        mixed, info = jax.device_get(_mixed(policy.discriminator, self.transitions(watched), reward, self.config))
        return mixed, {name: float(value) for name, value in info.items()}


def mixed_reward(
    discriminator: Discriminator,
    x: Float[Array, "steps envs x"],
    reward: Float[Array, "steps envs"],
    config: AMPConfig,
) -> tuple[Float[Array, "steps envs"], dict[str, Float[Array, ""]]]:
    """The rewards of transitions with their style in them, and their means."""
    score = jax.lax.map(discriminator, x)  # step by step: all at once would leave the caches
    style = losses_jax.style_reward(score, config.convention)
    mixed = config.task_weight * reward + config.style_weight * style
    return mixed, {"style_reward": style.mean(), "mixed_reward": mixed.mean()}


_mixed = jax.jit(mixed_reward, static_argnames="config")
