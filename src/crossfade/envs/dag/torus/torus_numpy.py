"""The continuous torus in NumPy; `TorusParams` is its specification, torus_jax.py its twin."""

import math

import numpy as np
from jaxtyping import Float

from ..base_numpy import Array
from ..continuous_numpy import ContinuousEnv, Moves, State
from ..continuous_params import EDGE
from .params import TorusParams

TURN = 2 * math.pi


class Torus(ContinuousEnv[TorusParams]):
    """See `TorusParams`."""

    def moves(self, state: State) -> Moves:
        moving = state.t < self.params.n_turns
        return Moves(np.zeros_like(state.x), np.full_like(state.x, TURN), moving, ~moving)

    def moves_back(self, state: State) -> Moves:
        moving = state.t > 1
        return Moves(np.zeros_like(state.x), np.full_like(state.x, TURN), moving, ~moving)

    def move(self, state: State, ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        return (state.x + TURN * ratio) % TURN

    def move_back(self, state: State, ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        return (state.x - TURN * ratio) % TURN

    def ratio(self, state: State, after: State) -> Float[Array, "*batch d"]:
        return np.clip((after.x - state.x) % TURN / TURN, EDGE, 1 - EDGE)

    def ratio_back(self, state: State, before: State) -> Float[Array, "*batch d"]:
        return np.clip((state.x - before.x) % TURN / TURN, EDGE, 1 - EDGE)

    def observe(self, state: State) -> Float[Array, "*batch observation"]:
        waves = [k * state.x for k in range(1, self.params.harmonics + 1)]
        time = state.t.astype(state.x.dtype)[..., None] / self.params.n_turns
        return np.concatenate([*map(np.cos, waves), *map(np.sin, waves), time], axis=-1)

    def log_reward(self, state: State) -> Float[Array, "*batch"]:
        even, odd = state.x[..., ::2], state.x[..., 1::2]
        wave = np.sin(self.params.alpha * even).sum(-1) + np.cos(self.params.beta * odd).sum(-1)
        return np.log(self.params.floor + (wave + self.params.n_dim) ** 3)
