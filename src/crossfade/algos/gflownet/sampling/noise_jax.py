"""The randomness of a batch of trajectories, drawn in JAX. Twin: noise_numpy.py, bit for bit."""

import jax
from jaxtyping import PRNGKeyArray

from ....random import streams_jax as streams
from ..batch import BackNoise, Noise


def draw(key: PRNGKeyArray, steps: int, batch: int, n_actions: int, dtype: str = "float32") -> Noise:
    """Gumbel noise for the actions and uniforms for exploration, from one key."""
    gumbel, explore = jax.random.split(key)
    return Noise(
        streams.gumbel(gumbel, (steps, batch, n_actions), dtype), streams.uniform(explore, (steps, batch), dtype)
    )


def draw_back(
    key: PRNGKeyArray,
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
    data, pick, back = jax.random.split(key, 3)
    uniform, weighted = jax.random.split(pick)
    return BackNoise(
        data=streams.uniform(data, (data_batch,), dtype),
        pick=streams.uniform(uniform, (replay_batch,), dtype),
        pick_gumbel=streams.gumbel(weighted, (replay_batch, capacity), dtype),
        gumbel=streams.gumbel(back, (steps, data_batch + replay_batch, n_parents), dtype),
    )
