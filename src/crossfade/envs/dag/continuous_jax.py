"""What a continuous GFlowNet environment is, in JAX. The NumPy twin, continuous_numpy.py, tells the story."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

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

    def reset(self, shape: tuple[int, ...] = (), dtype: DTypeLike = jnp.float32) -> State:
        """Source states."""
        x = jnp.full((*shape, self.params.n_dim), self.params.source, dtype)
        return State(x, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool))

    def ended(self, x: Float[Array, "*batch d"]) -> State:
        """Done states at these points: where backward trajectories start."""
        return State(x, jnp.full(x.shape[:-1], self.params.horizon, jnp.int32), jnp.ones(x.shape[:-1], bool))

    def step(self, state: State, ratio: Float[Array, "*batch d"], jump: Bool[Array, "*batch"]) -> State:
        """The next state: stop where `jump`, else move. A done state stays as it is."""
        done = state.done | jump
        moved = self.move(state, jnp.clip(ratio, EDGE, 1 - EDGE))
        return State(
            jnp.where(done[..., None], state.x, moved),
            jnp.where(done, state.t, jnp.minimum(state.t + 1, self.params.horizon)),
            done,
        )

    def unstep(self, state: State, ratio: Float[Array, "*batch d"], jump: Bool[Array, "*batch"]) -> State:
        """The state before: of a done state the same point, else the source where `jump`, else a move back."""
        moved = self.move_back(state, jnp.clip(ratio, EDGE, 1 - EDGE))
        before = jnp.where(jump[..., None], jnp.asarray(self.params.source, state.x.dtype), moved)
        stays = state.done | (state.t == 0)
        t = jnp.where(stays, state.t, jnp.where(jump, 0, jnp.maximum(state.t - 1, 1)))
        return State(jnp.where(stays[..., None], state.x, before), t, jnp.zeros_like(state.done))

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
