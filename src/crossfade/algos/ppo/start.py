"""Where a run begins: its keys, its parameters, and environments as their first episodes begin. Framework-free."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...envs.world import BoundWorld
from ...nn import normalizer_numpy
from ...nn.distribution import Distribution
from ...nn.initial import draw
from ...random import random_numpy as random
from ...run.saved import restored
from .batch import Carry
from .config import PPOConfig, continuous


def keys(config: PPOConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys of the updates, of the initial parameters and of the first episodes."""
    key, init_key, start_key = random.split(random.key(config.seed), 3)
    return key, init_key, start_key


def draw_parameters(
    config: PPOConfig, observation_dim: int, actions: Distribution, key: np.ndarray
) -> dict[str, np.ndarray]:
    """The network's parameters at the start of a run."""
    log_std = continuous(config).log_std_start if actions.n_free else 0.0
    laws = config.architecture.laws(observation_dim, actions.n_outputs, actions.n_free, log_std)
    return draw(laws, key, config.dtype)


def start(config: PPOConfig, envs: BoundWorld, saved: Mapping[str, Any] | None = None, aux: Any = None) -> Carry:
    """Environments of a NumPy world as the first episodes begin, nothing observed yet; or as a checkpoint holds them.

    `aux` is what a hook remembers before it begins. CheckpointError if what it holds does not fit this config.
    """
    uniform = random.uniform(keys(config)[2], (config.n_envs, envs.world.start_numbers), "float32")
    fresh = Carry(
        envs.begin(uniform),
        normalizer_numpy.start(envs.world.observation_dim, config.dtype),
        np.zeros(config.n_envs, config.dtype),
        np.zeros(config.n_envs, np.int32),
        aux,
    )
    if saved is None:
        return fresh
    saved = {"aux": None, **saved}  # runs of earlier versions had no hooks
    return restored(fresh, saved, "The checkpoint's environments do not fit: keep n_envs, env and dtype as they were.")
