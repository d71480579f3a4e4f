"""What a continuous GFlowNet environment is, in NumPy. The JAX twin is continuous_jax.py.

Where a discrete environment has masks, a continuous one has intervals. From a state a policy either jumps (stops, or
on the way back returns to the source) or moves: it draws a ratio r in (0, 1) for each dimension, and the coordinate
changes by `low + r width`. With f_d the density of r_d under the policy,

    log-density of a move = log P(move rather than jump) + sum_d log f_d(r_d) - sum_d log width_d,
    log-probability of a jump = log P(jump rather than move),

and where only one of the two is possible it is certain. Undoing stop is certain too (log-probability 0). Ratios are
arguments: drawing them is the policy's part. Every array has any number of leading batch axes.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import DTypeLike

from .base_numpy import Array
from .continuous_params import CP, EDGE


class State(NamedTuple):
    """A point, the moves that led to it (counted up to the horizon; 0 at the source), and whether it was the last."""

    x: Float[Array, "*batch d"]
    t: Int[Array, "*batch"]
    done: Bool[Array, "*batch"]


class Moves(NamedTuple):
    """What is possible from a state; low and width mean something only where `can_move`."""

    low: Float[Array, "*batch d"]
    width: Float[Array, "*batch d"]
    can_move: Bool[Array, "*batch"]
    can_jump: Bool[Array, "*batch"]


@dataclass(frozen=True)
class ContinuousEnv(ABC, Generic[CP]):
    """The protocol (first half) and the hooks a subclass writes (second half)."""

    params: CP

    def reset(self, shape: tuple[int, ...] = (), dtype: DTypeLike = np.float32) -> State:
        """Source states."""
        x = np.full((*shape, self.params.n_dim), self.params.source, dtype)
        return State(x, np.zeros(shape, np.int32), np.zeros(shape, bool))

    def ended(self, x: Float[Array, "*batch d"]) -> State:
        """Done states at these points: where backward trajectories start."""
        return State(x, np.full(x.shape[:-1], self.params.horizon, np.int32), np.ones(x.shape[:-1], bool))

    def step(self, state: State, ratio: Float[Array, "*batch d"], jump: Bool[Array, "*batch"]) -> State:
        """The next state: stop where `jump`, else move. A done state stays as it is."""
        done = state.done | jump
        moved = self.move(state, np.clip(ratio, EDGE, 1 - EDGE))
        return State(
            np.where(done[..., None], state.x, moved),
            np.where(done, state.t, np.minimum(state.t + 1, self.params.horizon)),
            done,
        )

    def unstep(self, state: State, ratio: Float[Array, "*batch d"], jump: Bool[Array, "*batch"]) -> State:
        """The state before: of a done state the same point, else the source where `jump`, else a move back."""
        moved = self.move_back(state, np.clip(ratio, EDGE, 1 - EDGE))
        before = np.where(jump[..., None], np.asarray(self.params.source, state.x.dtype), moved)
        stays = state.done | (state.t == 0)
        t = np.where(stays, state.t, np.where(jump, 0, np.maximum(state.t - 1, 1)))
        return State(np.where(stays[..., None], state.x, before), t, np.zeros_like(state.done))

    def forward(self, state: State) -> Moves:
        """What is possible forwards (a jump is stop); nothing once done."""
        moves = self.moves(state)
        return moves._replace(can_move=moves.can_move & ~state.done, can_jump=moves.can_jump & ~state.done)

    def backward(self, state: State) -> Moves:
        """What is possible backwards (a jump is the return to the source); nothing at the source and once done."""
        moves, inside = self.moves_back(state), ~state.done & (state.t > 0)
        return moves._replace(can_move=moves.can_move & inside, can_jump=moves.can_jump & inside)

    @abstractmethod
    def moves(self, state: State) -> Moves:
        """`forward`, `done` left aside."""

    @abstractmethod
    def moves_back(self, state: State) -> Moves:
        """`backward`, `done` and the source left aside."""

    @abstractmethod
    def move(self, state: State, ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """The point after a move."""

    @abstractmethod
    def move_back(self, state: State, ratio: Float[Array, "*batch d"]) -> Float[Array, "*batch d"]:
        """The point before a move."""

    @abstractmethod
    def ratio(self, state: State, after: State) -> Float[Array, "*batch d"]:
        """The ratio of the forward move from `state` to `after`, kept within EDGE of 0 and 1."""

    @abstractmethod
    def ratio_back(self, state: State, before: State) -> Float[Array, "*batch d"]:
        """The ratio of the backward move from `state` to `before`, kept within EDGE of 0 and 1."""

    @abstractmethod
    def observe(self, state: State) -> Float[Array, "*batch observation"]:
        """The input of a policy network."""

    @abstractmethod
    def log_reward(self, state: State) -> Float[Array, "*batch"]:
        """log R(x); at the source whatever the class documents."""
