"""The randomness of a batch of continuous trajectories, drawn in NumPy. Twin: noise_jax.py.

Bit for bit, but for the last bit of normal numbers in float64.
"""

import numpy as np

from ....random import random_numpy as random
from .batch import CIRCLE_ROUNDS, GAMMA_ROUNDS, Kind, Noise


def draw(
    key: np.ndarray, steps: int, batch: int, n_dim: int, components: int, kind: Kind, dtype: str = "float32"
) -> Noise:
    """All the noise that a batch of moves may need, from one key; what the kind of density does not need is None."""
    component, normal, accept, circle, jump, explore, ratio = random.split(key, 7)
    rows, cells = (steps, batch), (steps, batch, n_dim)
    beta = kind == "beta"
    return Noise(
        component=random.gumbel(component, (*cells, components), dtype),
        normal=random.normal(normal, (*cells, 2, GAMMA_ROUNDS), dtype) if beta else None,
        accept=random.uniform(accept, (*cells, 2, GAMMA_ROUNDS), dtype) if beta else None,
        circle=None if beta else random.uniform(circle, (*cells, CIRCLE_ROUNDS, 3), dtype),
        jump=random.uniform(jump, rows, dtype),
        explore=random.uniform(explore, rows, dtype),
        ratio=random.uniform(ratio, cells, dtype),
    )
