"""The continuous torus in JAX; `TorusParams` is its specification, torus_numpy.py its twin."""

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..continuous_jax import ContinuousEnv, Moves, State
from ..continuous_params import EDGE
from .params import TorusParams

TURN = 2 * math.pi


class Torus(ContinuousEnv[TorusParams]):
    """See `TorusParams`."""

    def moves(self, state: State) -> Moves:
        moving = state.t < self.params.n_turns
        return Moves(jnp.zeros_like(state.x), jnp.full_like(state.x, TURN), moving, ~moving)

    def moves_back(self, state: State) -> Moves:
        moving = state.t > 1
        return Moves(jnp.zeros_like(state.x), jnp.full_like(state.x, TURN), moving, ~moving)

    def move(self, state: State, ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        return (state.x + TURN * ratio) % TURN

    def move_back(self, state: State, ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        return (state.x - TURN * ratio) % TURN

    def ratio(self, state: State, after: State) -> Float[Array, "*batch d"]:
        return jnp.clip((after.x - state.x) % TURN / TURN, EDGE, 1 - EDGE)

    def ratio_back(self, state: State, before: State) -> Float[Array, "*batch d"]:
        return jnp.clip((state.x - before.x) % TURN / TURN, EDGE, 1 - EDGE)

    def observe(self, state: State) -> Float[Array, "*batch observation"]:
        waves = [k * state.x for k in range(1, self.params.harmonics + 1)]
        time = state.t.astype(state.x.dtype)[..., None] / self.params.n_turns
        return jnp.concatenate([*map(jnp.cos, waves), *map(jnp.sin, waves), time], axis=-1)

    def log_reward(self, state: State) -> Float[Array, "*batch"]:
        even, odd = state.x[..., ::2], state.x[..., 1::2]
        wave = jnp.sin(self.params.alpha * even).sum(-1) + jnp.cos(self.params.beta * odd).sum(-1)
        return jnp.log(self.params.floor + (wave + self.params.n_dim) ** 3)
