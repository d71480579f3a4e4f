"""The randomness of a batch of trajectories, drawn in NumPy. Twin: noise_jax.py, bit for bit."""

import numpy as np

from ....random import random_numpy as random
from ..batch import BackNoise, Noise


def draw(key: np.ndarray, steps: int, batch: int, n_actions: int, dtype: str = "float32") -> Noise:
    """Gumbel noise for the actions and uniforms for exploration, from one key."""
    gumbel, explore = random.split(key)
    return Noise(
        gumbel=random.gumbel(gumbel, (steps, batch, n_actions), dtype),
        explore=random.uniform(explore, (steps, batch), dtype),
    )


def draw_back(
    key: np.ndarray,
    steps: int,
    data_batch: int,
    replay_batch: int,
    capacity: int,
    n_parents: int,
    dtype: str = "float32",
) -> BackNoise:
    """The randomness of trajectories built backwards, from one key: which objects, and the ways back from them.

    `capacity` is that of a replay buffer from which objects are drawn in proportion to their reward; 0 draws no noise.
    """
    data, replay, back = random.split(key, 3)
    alike, by_reward = random.split(replay)
    return BackNoise(
        data=random.uniform(data, (data_batch,), dtype),
        pick=random.uniform(alike, (replay_batch,), dtype),
        pick_gumbel=random.gumbel(by_reward, (replay_batch, capacity), dtype),
        gumbel=random.gumbel(back, (steps, data_batch + replay_batch, n_parents), dtype),
    )
