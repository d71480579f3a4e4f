"""A world small enough to follow by hand, and networks to act in it."""

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from crossfade.algos.ppo import learner_jax
from crossfade.algos.ppo.architecture import Architecture
from crossfade.algos.ppo.batch import Carry
from crossfade.algos.ppo.config import PPOConfig
from crossfade.algos.ppo.network_jax import ActorCritic
from crossfade.envs.world import BareOutcome, Discrete
from crossfade.nn import normalizer_jax as normalizer
from crossfade.nn.layers_jax import name


class Place(NamedTuple):
    x: Any
    t: Any


class Limits(NamedTuple):
    last: Any = 4
    prize: Any = 1.0


@dataclass(frozen=True)
class Walk:
    """Left, stay, right on 0 .. 3, not left at 0; falling off pays and terminates, `last` steps truncate."""

    observation_dim, action_space, start_numbers = 3, Discrete(3), 2

    def begin(self, data, settings, uniform):
        x = jnp.floor(uniform[..., 0] * data).astype(jnp.int32)
        return Place(x, jnp.zeros_like(x))

    def observe(self, data, settings, state):
        return jnp.stack([state.x, state.t, state.x * state.t], -1).astype(jnp.float32)

    def mask(self, data, settings, state):
        return jnp.stack([state.x > 0, state.x >= 0, state.x >= 0], -1)

    def step(self, data, settings, state, action):
        x, t = state.x + action - 1, state.t + 1
        fallen = x >= 4
        reward = fallen * settings.prize - 0.125 * t
        return Place(x, t), BareOutcome(reward.astype(jnp.float32), fallen, (t >= settings.last) & ~fallen)


WORLD, DATA = Walk(), np.int32(3)
SMALL = dict(n_envs=4, n_steps=6, epochs=2, minibatches=3, hidden=8, layers=1, lr=0.01, steps=8, dtype="float64")


PUBLISHED = Architecture((256, 256), (128,), "relu", layer_norm=True, initial="lecun")


@dataclass(frozen=True)
class PublishedConfig(PPOConfig):
    """With the network that trading knows as `network=seed`."""

    @property
    def architecture(self) -> Architecture:
        return PUBLISHED


def small(kind: type[PPOConfig] = PPOConfig, **changes) -> PPOConfig:
    return kind(**{**SMALL, **changes})


def actions(config: PPOConfig, n_actions: int = 3):
    return learner_jax.make_actions(config, Discrete(n_actions))


def settings(n: int, **changes) -> Limits:
    """The same for n updates."""
    limits = Limits(**changes)
    return Limits(jnp.full(n, limits.last, jnp.int32), jnp.full(n, limits.prize, jnp.float32))


def parameters(config: PPOConfig, observation_dim=3, n_actions=3, seed=0, scale=1.0) -> dict[str, np.ndarray]:
    """Random parameters for every leaf."""
    network = ActorCritic(observation_dim, actions(config, n_actions), config.architecture)
    rng = np.random.default_rng(seed)
    return {
        name(path): scale * rng.normal(size=leaf.shape) / np.sqrt(leaf.shape[-1])
        for path, leaf in jax.tree_util.tree_leaves_with_path(network)
    }


@cache
def optimizer(config: PPOConfig):
    """One for each config: programs are compiled for it."""
    return learner_jax.make_optimizer(config, learner_jax.make_policy(config, 3, actions(config), parameters(config)))


def started(config: PPOConfig):
    """A policy, its optimiser and environments at the start of a run."""
    policy = learner_jax.make_policy(config, 3, actions(config), parameters(config))
    tx = optimizer(config)
    uniform = jax.random.uniform(jax.random.key(1), (config.n_envs, WORLD.start_numbers), "float32")
    began = WORLD.begin(DATA, Limits(), uniform)
    zeros = jnp.zeros(config.n_envs, config.dtype), jnp.zeros(config.n_envs, jnp.int32)
    carry = Carry(began, normalizer.start(3, config.dtype), *zeros)
    return policy, tx, tx.init(policy), carry


def rates(config: PPOConfig, first: int, n: int):
    return jnp.array([config.learning_rate(i) for i in range(first, first + n)], config.dtype)
