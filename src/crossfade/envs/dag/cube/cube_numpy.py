"""The continuous cube in NumPy; `CubeParams` is its specification, cube_jax.py its twin."""

import math

import numpy as np
from jaxtyping import Float

from ..base_numpy import Array
from ..continuous_numpy import ContinuousEnv, Moves, State
from ..continuous_params import EDGE
from .params import CubeParams


class Cube(ContinuousEnv[CubeParams]):
    """See `CubeParams`."""

    def moves(self, state: State) -> Moves:
        m, first = self.params.min_increment, (state.t == 0)[..., None]
        low = np.where(first, -state.x, np.asarray(m, state.x.dtype))  # from the source: x' = r
        width = np.where(first, np.ones_like(state.x), 1 - m - state.x)
        return Moves(low, width, width.min(-1) > 0, state.t > 0)

    def moves_back(self, state: State) -> Moves:
        m = self.params.min_increment
        low, width = np.full_like(state.x, m), state.x - m
        return Moves(low, width, width.min(-1) > 0, np.ones_like(state.done))

    def move(self, state: State, ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        moves = self.moves(state)
        return state.x + moves.low + ratio * moves.width

    def move_back(self, state: State, ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        moves = self.moves_back(state)
        return state.x - moves.low - ratio * moves.width

    def ratio(self, state: State, after: State) -> Float[Array, "*batch d"]:
        moves = self.moves(state)
        return np.clip((after.x - state.x - moves.low) / _safe(moves.width), EDGE, 1 - EDGE)

    def ratio_back(self, state: State, before: State) -> Float[Array, "*batch d"]:
        moves = self.moves_back(state)
        return np.clip((state.x - before.x - moves.low) / _safe(moves.width), EDGE, 1 - EDGE)

    def observe(self, state: State) -> Float[Array, "*batch observation"]:
        first = (state.t == 0)[..., None]
        return np.concatenate([np.where(first, 0, 2 * state.x - 1), first.astype(state.x.dtype)], axis=-1)

    def log_reward(self, state: State) -> Float[Array, "*batch"]:
        square = ((np.abs(2 * state.x - 1) - self.params.mu) ** 2).sum(-1) / self.params.variance
        constant = self.params.n_dim * math.log(2 * math.pi * self.params.variance)
        return np.where(state.t == 0, 0, -(square + constant) / 2)


def _safe(width: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
    """1 where there is no room to move: no division by zero where the result is not used."""
    return np.where(width > 0, width, 1)
