"""What a discrete GFlowNet environment is, in NumPy. The JAX twin is base_jax.py.

Objects x are built step by step from a source by forward actions, the last of which is stop: it leads from (x, not
done) to (x, done) and ends the trajectory. Backward actions undo forward ones. A new environment subclasses `Env` and
writes the hooks, which speak of the object x alone; what `done` means for steps and masks is said here, once.

Every array has any number of leading batch axes. Valid is True. An environment is an immutable value made from its
params, whose docstring is the environment's specification; it draws no random numbers.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import DTypeLike

from ...errors import UsageError
from .params import P
from .rewards import check_reward

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes


class State(NamedTuple):
    """An object, and whether its trajectory has ended with it."""

    x: Int[Array, "*batch d"]
    done: Bool[Array, "*batch"]


@dataclass(frozen=True)
class Env(ABC, Generic[P]):
    """The protocol that samplers and losses use (first half) and the hooks a subclass writes (second half)."""

    params: P

    @property
    def n_actions(self) -> int:
        """Number of forward actions; the last one is stop."""
        return self.params.n_actions

    @property
    def n_parents(self) -> int:
        """Number of backward actions. Undoing stop is not among them: it is the only way back from a done state."""
        return self.params.n_parents

    @property
    def max_steps(self) -> int:
        """The largest number of transitions of a trajectory, stop included."""
        return self.params.max_steps

    @property
    def observation_dim(self) -> int:
        """Width of `observe`."""
        return self.params.observation_dim

    @property
    def n_states(self) -> int | None:
        """Number of objects x, indexed without gaps, all reachable; None when they cannot be enumerated."""
        return self.params.n_states

    @property
    def terminating(self) -> bool:
        """Whether every object may stop."""
        return self.params.terminating

    def reset(self, shape: tuple[int, ...] = ()) -> State:
        """Source states."""
        return State(
            np.broadcast_to(self.params.source, (*shape, len(self.params.source))).copy(), np.zeros(shape, bool)
        )

    def step(self, state: State, action: Int[Array, "*batch"]) -> State:
        """The next state. A done state stays as it is; an invalid action is the caller's bug (see `check_action`)."""
        done = state.done | (action == self.n_actions - 1)
        return State(np.where(done[..., None], state.x, self.grow(state.x, action)), done)

    def unstep(self, state: State, parent: Int[Array, "*batch"]) -> State:
        """The state before. Of a done state that is the same object, not done; the source stays."""
        stays = state.done | (state.x == self.params.source).all(-1)
        return State(np.where(stays[..., None], state.x, self.shrink(state.x, parent)), np.zeros_like(state.done))

    def forward_mask(self, state: State) -> Bool[Array, "*batch actions"]:
        """Valid forward actions; none once done."""
        valid = np.concatenate([self.can_grow(state.x), self.can_stop(state.x)[..., None]], axis=-1)
        return valid & ~state.done[..., None]

    def backward_mask(self, state: State) -> Bool[Array, "*batch parents"]:
        """Valid backward actions; none at the source, and none once done (undoing stop is implied, log-prob 0)."""
        return self.can_shrink(state.x) & ~state.done[..., None]

    def parent_of(self, state: State, action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        """The backward action that undoes `action` taken in `state`; any valid index for stop."""
        return self.undo(state.x, np.minimum(action, self.n_actions - 2))

    def action_of(self, state: State, parent: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        """The forward action that leads from `unstep(state, parent)` back to `state`: stop when `state` is done."""
        return np.where(state.done, self.n_actions - 1, self.redo(state.x, parent))

    def observe(self, state: State, dtype: DTypeLike = np.float32) -> Float[Array, "*batch observation"]:
        """The input of a policy network."""
        return self.features(state.x).astype(dtype)

    def log_reward(self, state: State) -> Float[Array, "*batch"]:
        """log R(x), done or not; where x may not stop, the extension that the class documents.

        NumPy computes in float64, JAX in its default float.
        """
        value = self.log_r(state.x)
        check_reward(self, state.x, value)
        return value

    def index(self, state: State) -> Int[Array, "*batch"]:
        """The number of x among the `n_states` objects."""
        self._require_states()
        return self.encode(state.x)

    def state(self, index: Int[Array, "*batch"]) -> State:
        """The object with this number, not done."""
        self._require_states()
        return State(self.decode(index), np.zeros(np.shape(index), bool))

    def _require_states(self) -> None:
        if self.n_states is None:
            raise UsageError(f"{self} cannot be enumerated: it has too many states to number. Use a smaller instance.")

    # Hooks: x is the object alone, actions are never stop unless said.

    @abstractmethod
    def grow(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        """x after a forward action; for stop any object, which is thrown away."""

    @abstractmethod
    def shrink(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        """x after a backward action; at the source any object, which is thrown away."""

    @abstractmethod
    def can_grow(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch moves"]:
        """Valid forward actions but stop."""

    @abstractmethod
    def can_shrink(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch parents"]:
        """Valid backward actions."""

    def can_stop(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        """Whether x may stop."""
        return np.ones(x.shape[:-1], bool)

    def undo(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        """The backward action that undoes a forward action taken in x."""
        return action

    def redo(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        """The forward action that a backward action taken in x undoes."""
        return parent

    @abstractmethod
    def features(self, x: Int[Array, "*batch d"]) -> Shaped[Array, "*batch observation"]:
        """What a network sees of x."""

    @abstractmethod
    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        """Log-reward of x."""

    def encode(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        """The number of x, below `n_states`."""
        raise NotImplementedError(f"{type(self).__name__} states n_states but not encode")

    def decode(self, index: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        """The object with this number."""
        raise NotImplementedError(f"{type(self).__name__} states n_states but not decode")


def check_action(env: Env, state: State, action: Int[Array, "*batch"]) -> None:
    """Raise unless every action is valid in its state: a debugging aid, not part of `step`; not under `jit`."""
    valid = np.take_along_axis(env.forward_mask(state), action[..., None], axis=-1)[..., 0] | state.done
    if not valid.all():
        where = tuple(int(i) for i in np.argwhere(~valid)[0])
        raise UsageError(
            f"invalid action {action[where]} in state {state.x[where]} (batch position {where}, {(~valid).sum()} such "
            f"in all). Valid there: {np.flatnonzero(env.forward_mask(state)[where]).tolist()}; mask before sampling."
        )
