"""The randomness of a batch of trajectories, drawn in JAX. Twin: noise_numpy.py, bit for bit."""

import jax
from jaxtyping import PRNGKeyArray

from ....random import streams_jax as streams
from .batch import CIRCLE_ROUNDS, GAMMA_ROUNDS, Kind, Noise


def draw(
    key: PRNGKeyArray, steps: int, batch: int, n_dim: int, components: int, kind: Kind, dtype: str = "float32"
) -> Noise:
    """All the noise that a batch of moves may need, from one key; what the kind of density does not need is None."""
    component, normal, accept, circle, jump, explore, ratio = jax.random.split(key, 7)
    rows, moves = (steps, batch), (steps, batch, n_dim)
    gammas = (*moves, 2, GAMMA_ROUNDS)
    beta = kind == "beta"
    return Noise(
        component=streams.gumbel(component, (*moves, components), dtype),
        normal=streams.normal(normal, gammas, dtype) if beta else None,
        accept=streams.uniform(accept, gammas, dtype) if beta else None,
        circle=None if beta else streams.uniform(circle, (*moves, CIRCLE_ROUNDS, 3), dtype),
        jump=streams.uniform(jump, rows, dtype),
        explore=streams.uniform(explore, rows, dtype),
        ratio=streams.uniform(ratio, moves, dtype),
    )
