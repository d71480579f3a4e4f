"""The randomness of a batch of trajectories, drawn in JAX. Twin: noise_numpy.py, bit for bit."""

import jax
from jaxtyping import PRNGKeyArray

from .batch import Noise


def draw(key: PRNGKeyArray, steps: int, batch: int, n_actions: int, dtype: str = "float32") -> Noise:
    """Gumbel noise for the actions and uniforms for exploration, from one key."""
    gumbel, explore = jax.random.split(key)
    return Noise(
        gumbel=jax.random.gumbel(gumbel, (steps, batch, n_actions), dtype),
        explore=jax.random.uniform(explore, (steps, batch), dtype),
    )
