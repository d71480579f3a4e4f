"""The randomness of a batch of trajectories, drawn in NumPy. Twin: noise_jax.py, bit for bit."""

import numpy as np

from ...random import random_numpy as random
from .batch import Noise


def draw(key: np.ndarray, steps: int, batch: int, n_actions: int, dtype: str = "float32") -> Noise:
    """Gumbel noise for the actions and uniforms for exploration, from one key."""
    gumbel, explore = random.split(key)
    return Noise(
        gumbel=random.gumbel(gumbel, (steps, batch, n_actions), dtype),
        explore=random.uniform(explore, (steps, batch), dtype),
    )
