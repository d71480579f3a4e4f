"""The maze in JAX, any number of balls at once. Twin: maze_numpy.py. The rules are in params.py."""

from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32

from ..world import BareOutcome, Continuous
from .params import GRAIN, RADIUS, MazeParams, State


@dataclass(frozen=True)
class Maze:
    """See `MazeParams`. A world without data and settings."""

    params: MazeParams
    observation_dim: ClassVar[int] = 2
    action_space: ClassVar[Continuous] = Continuous(2)
    start_numbers: ClassVar[int] = 2

    def begin(self, data: None, settings: None, uniform: Float32[Array, "*batch 2"]) -> State:
        """Balls near the centre of the start cell."""
        start = jnp.broadcast_to(self.params.start, uniform.shape)
        position = start + on_grain((uniform - 0.5) * jnp.float32(2 * self.params.jitter))
        return State(position, jnp.zeros(position.shape[:-1], jnp.int32))

    def observe(self, data: None, settings: None, state: State) -> Float32[Array, "*batch 2"]:
        """The position."""
        return state.position

    def mask(self, data: None, settings: None, state: State) -> None:
        """None: every action is legal."""
        return None

    def step(
        self, data: None, settings: None, state: State, action: Float[Array, "*batch 2"]
    ) -> tuple[State, BareOutcome]:
        """The balls after a move, and whether they have arrived."""
        after = State(self.move(state.position, action), state.t + 1)
        arrived = self.reached(after.position, jnp.broadcast_to(self.params.goal, after.position.shape))
        reward = arrived.astype(jnp.float32) - 1
        return after, BareOutcome(reward, arrived, (after.t >= self.params.limit) & ~arrived)

    def move(
        self, position: Float32[Array, "*batch 2"], action: Float[Array, "*batch 2"]
    ) -> Float32[Array, "*batch 2"]:
        """Where an action leads: along x, then along y, each as far as the walls allow."""
        wanted = on_grain(jnp.clip(action.astype(jnp.float32), -1, 1) * jnp.float32(self.params.speed))
        x, y = position[..., 0], position[..., 1]
        x = _along(x, wanted[..., 0], y, self.params.walls.T)
        y = _along(y, wanted[..., 1], x, self.params.walls)
        return jnp.stack([x, y], -1)

    def reached(self, position: Float32[Array, "*batch 2"], goal: Float32[Array, "*#batch 2"]) -> Bool[Array, "*batch"]:
        """Whether ||position - goal|| <= tolerance."""
        away = jnp.minimum(jnp.abs(position - goal), 1)
        return (away * away).sum(-1) <= jnp.float32(self.params.tolerance**2)


def on_grain(distance: Float32[Array, "*shape"]) -> Float32[Array, "*shape"]:
    """The nearest multiples of 1 / GRAIN."""
    return jnp.rint(distance * GRAIN) / GRAIN


def _along(
    place: Float32[Array, "*batch"],
    wanted: Float32[Array, "*batch"],
    across: Float32[Array, "*batch"],
    walls: Bool[np.ndarray, "along across"],
) -> Float32[Array, "*batch"]:
    """Coordinates on one axis after a move along it; `across` is the other coordinate."""
    solid, here = jnp.asarray(walls), jnp.floor(place)
    cell, first = here.astype(jnp.int32), jnp.floor(across - RADIUS).astype(jnp.int32)
    last = jnp.ceil(across + RADIUS).astype(jnp.int32) - 1
    low = jnp.where(solid[cell - 1, first] | solid[cell - 1, last], here + RADIUS, -jnp.inf)
    high = jnp.where(solid[cell + 1, first] | solid[cell + 1, last], here + (1 - RADIUS), jnp.inf)
    return jnp.clip(place + wanted, low, high)
