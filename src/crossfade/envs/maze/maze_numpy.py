"""The maze in NumPy, any number of balls at once. Twin: maze_jax.py. The rules are in params.py."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Float32

from ..world import BareOutcome, Continuous
from .params import GRAIN, RADIUS, MazeParams, State

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes


@dataclass(frozen=True)
class Maze:
    """See `MazeParams`. A world without data and settings."""

    params: MazeParams
    observation_dim: ClassVar[int] = 2
    action_space: ClassVar[Continuous] = Continuous(2)
    start_numbers: ClassVar[int] = 2

    def begin(self, data: None, settings: None, uniform: Float32[Array, "*batch 2"]) -> State:
        """Balls near the centre of the start cell."""
        position = self.params.start + on_grain((uniform - np.float32(0.5)) * np.float32(2 * self.params.jitter))
        return State(position, np.zeros(position.shape[:-1], np.int32))

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
        after = State(self.move(state.position, action), state.t + np.int32(1))
        arrived = self.reached(after.position, self.params.goal)
        reward = arrived.astype(np.float32) - np.float32(1)
        return after, BareOutcome(reward, arrived, (after.t >= self.params.limit) & ~arrived)

    def move(
        self, position: Float32[Array, "*batch 2"], action: Float[Array, "*batch 2"]
    ) -> Float32[Array, "*batch 2"]:
        """Where an action leads: along x, then along y, each as far as the walls allow."""
        wanted = on_grain(np.clip(action.astype(np.float32), -1, 1) * np.float32(self.params.speed))
        x, y = position[..., 0], position[..., 1]
        x = _along(x, wanted[..., 0], y, self.params.walls.T)
        y = _along(y, wanted[..., 1], x, self.params.walls)
        return np.stack([x, y], -1)

    def reached(self, position: Float32[Array, "*batch 2"], goal: Float32[Array, "*#batch 2"]) -> Bool[Array, "*batch"]:
        """Whether ||position - goal|| <= tolerance."""
        away = np.minimum(np.abs(position - goal), np.float32(1))
        return (away * away).sum(-1) <= np.float32(self.params.tolerance**2)


def on_grain(distance: Float32[Array, "*shape"]) -> Float32[Array, "*shape"]:
    """The nearest multiples of 1 / GRAIN."""
    return np.rint(distance * np.float32(GRAIN)) / np.float32(GRAIN)


def _along(
    place: Float32[Array, "*batch"],
    wanted: Float32[Array, "*batch"],
    across: Float32[Array, "*batch"],
    walls: Bool[np.ndarray, "along across"],
) -> Float32[Array, "*batch"]:
    """Coordinates on one axis after a move along it; `across` is the other coordinate."""
    radius, here = np.float32(RADIUS), np.floor(place)
    cell, first = here.astype(np.int32), np.floor(across - radius).astype(np.int32)
    last = np.ceil(across + radius).astype(np.int32) - 1
    low = np.where(walls[cell - 1, first] | walls[cell - 1, last], here + radius, np.float32(-np.inf))
    high = np.where(walls[cell + 1, first] | walls[cell + 1, last], here + (1 - radius), np.float32(np.inf))
    return np.clip(place + wanted, low, high)
