"""Small networks, batches and arithmetic written out, for the tests of IQN in JAX."""

from dataclasses import dataclass

import jax
import numpy as np

from crossfade.algos.iqn.architecture import architecture, draw_parameters
from crossfade.algos.iqn.batch import Transitions
from crossfade.algos.iqn.config import IQNConfig
from crossfade.algos.iqn.losses_jax import loss
from crossfade.algos.iqn.networks_jax import make_policy
from crossfade.nn.layers_jax import name
from crossfade.random import random_numpy

OBSERVATION, ACTIONS = 3, 3


@dataclass(frozen=True)
class Config(IQNConfig):
    players: int = 3

    @property
    def agents(self):
        return self.players


def small(**changes):
    settings = {"dtype": "float64", "frames": 2, "hidden": 5, "cosines": 4, "quantiles": 3, "batch_size": 4}
    return Config(**{**settings, "lr": (0.01,), "tau": 0.25, "sigma": 0.3, "gamma": (0.9,), **changes})


def sizes_of(config):
    return architecture(config, OBSERVATION, ACTIONS)


def parameters(config):
    """Random ones; target networks differ from the local ones, as they do after a step."""
    rng = np.random.default_rng(1)
    start = draw_parameters(config, sizes_of(config), random_numpy.key(3))
    return {key: array + 0.3 * rng.normal(size=array.shape) for key, array in start.items()}


def transitions(config, seed=0):
    rng, sizes = np.random.default_rng(seed), sizes_of(config)
    agents, batch, n = config.agents, config.batch_size, config.quantiles
    state, next_state = rng.normal(size=(2, agents, batch, sizes.inputs))
    return Transitions(
        state,
        rng.integers(0, ACTIONS, (agents, batch), dtype=np.int32),
        3 * rng.normal(size=(agents, batch)),
        next_state,
        np.broadcast_to([0.0, 0.9, 0.9, 0.81], (agents, batch)),
        np.broadcast_to([1.0, 1.0, 0.0, 1.0], (agents, batch)),
        rng.random((agents, 3, batch, n)),
        rng.normal(size=(agents, 3, sizes.noise_dim)),
    )


def of_agent(data, agent):
    return jax.tree.map(lambda column: column[agent], data)


def named(tree):
    return {name(path): np.asarray(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def policy_of(config):
    return make_policy(config, sizes_of(config), parameters(config))


gradient_of = jax.jit(jax.grad(loss, has_aux=True), static_argnums=2)
