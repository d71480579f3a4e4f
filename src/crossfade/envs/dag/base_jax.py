"""What a discrete GFlowNet environment is, in JAX. The NumPy twin, base_numpy.py, tells the story.

The public methods take any number of leading batch axes, and work under `jit`, `vmap` and `scan`. The hooks of a
subclass are written for ONE object, as JAX code likes to be; the base class maps them over the batch. An environment
compares and hashes by its params, so it can be a static argument of `jit`; its tables are NumPy constants.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int, Shaped

from ...errors import UsageError
from .params import P


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
        return State(jnp.tile(self.params.source, (*shape, 1)), jnp.zeros(shape, bool))

    def step(self, state: State, action: Int[Array, "*batch"]) -> State:
        """The next state. A done state stays as it is; an invalid action is the caller's bug (see `check_action`)."""
        done = state.done | (action == self.n_actions - 1)
        grown = _each(self.grow, action.ndim, state.x, action)
        return State(jnp.where(done[..., None], state.x, grown), done)

    def unstep(self, state: State, parent: Int[Array, "*batch"]) -> State:
        """The state before. Of a done state that is the same object, not done; the source stays."""

        def before(x: Int[Array, " d"], done: Bool[Array, ""], parent: Int[Array, ""]) -> Int[Array, " d"]:
            return jnp.where(done | (x == self.params.source).all(), x, self.shrink(x, parent))

        return State(_each(before, parent.ndim, state.x, state.done, parent), jnp.zeros_like(state.done))

    def forward_mask(self, state: State) -> Bool[Array, "*batch actions"]:
        """Valid forward actions; none once done."""

        def mask(x: Int[Array, " d"], done: Bool[Array, ""]) -> Bool[Array, " actions"]:
            return jnp.append(self.can_grow(x), self.can_stop(x)) & ~done

        return _each(mask, state.done.ndim, state.x, state.done)

    def backward_mask(self, state: State) -> Bool[Array, "*batch parents"]:
        """Valid backward actions; none at the source, and none once done (undoing stop is implied, log-prob 0)."""
        return _each(self.can_shrink, state.done.ndim, state.x) & ~state.done[..., None]

    def parent_of(self, state: State, action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        """The backward action that undoes `action` taken in `state`; any valid index for stop."""
        return _each(self.undo, action.ndim, state.x, jnp.minimum(action, self.n_actions - 2))

    def action_of(self, state: State, parent: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        """The forward action that leads from `unstep(state, parent)` back to `state`: stop when `state` is done."""
        return jnp.where(state.done, self.n_actions - 1, _each(self.redo, parent.ndim, state.x, parent))

    def observe(self, state: State, dtype: DTypeLike = jnp.float32) -> Float[Array, "*batch observation"]:
        """The input of a policy network."""
        return _each(self.features, state.done.ndim, state.x).astype(dtype)

    def log_reward(self, state: State) -> Float[Array, "*batch"]:
        """log R(x), done or not; where x may not stop, the extension that the class documents.

        NumPy computes in float64, JAX in its default float.
        """
        return _each(self.log_r, state.done.ndim, state.x)

    def index(self, state: State) -> Int[Array, "*batch"]:
        """The number of x among the `n_states` objects."""
        self._require_states()
        return _each(self.encode, state.done.ndim, state.x)

    def state(self, index: Int[Array, "*batch"]) -> State:
        """The object with this number, not done."""
        self._require_states()
        return State(_each(self.decode, index.ndim, index), jnp.zeros(index.shape, bool))

    def _require_states(self) -> None:
        if self.n_states is None:
            raise UsageError(f"{self} cannot be enumerated: it has too many states to number. Use a smaller instance.")

    # Hooks: x is ONE object alone, actions are never stop unless said.

    @abstractmethod
    def grow(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, " d"]:
        """x after a forward action; for stop any object, which is thrown away."""

    @abstractmethod
    def shrink(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, " d"]:
        """x after a backward action; at the source any object, which is thrown away."""

    @abstractmethod
    def can_grow(self, x: Int[Array, " d"]) -> Bool[Array, " moves"]:
        """Valid forward actions but stop."""

    @abstractmethod
    def can_shrink(self, x: Int[Array, " d"]) -> Bool[Array, " parents"]:
        """Valid backward actions."""

    def can_stop(self, x: Int[Array, " d"]) -> Bool[Array, ""]:
        """Whether x may stop."""
        return jnp.array(True)

    def undo(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, ""]:
        """The backward action that undoes a forward action taken in x."""
        return action

    def redo(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, ""]:
        """The forward action that a backward action taken in x undoes."""
        return parent

    @abstractmethod
    def features(self, x: Int[Array, " d"]) -> Shaped[Array, " observation"]:
        """What a network sees of x."""

    @abstractmethod
    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        """Log-reward of x."""

    def encode(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        """The number of x, below `n_states`."""
        raise NotImplementedError(f"{type(self).__name__} states n_states but not encode")

    def decode(self, index: Int[Array, ""]) -> Int[Array, " d"]:
        """The object with this number."""
        raise NotImplementedError(f"{type(self).__name__} states n_states but not decode")


def check_action(env: Env, state: State, action: Int[Array, "*batch"]) -> None:
    """Raise unless every action is valid in its state: a debugging aid, not part of `step`; not under `jit`."""
    mask = np.asarray(env.forward_mask(state))
    valid = np.take_along_axis(mask, np.asarray(action)[..., None], axis=-1)[..., 0] | np.asarray(state.done)
    if not valid.all():
        where = tuple(int(i) for i in np.argwhere(~valid)[0])
        raise UsageError(
            f"invalid action {action[where]} in state {state.x[where]} (batch position {where}, {(~valid).sum()} such "
            f"in all). Valid there: {np.flatnonzero(mask[where]).tolist()}; mask before sampling."
        )


def _each(hook: Callable[..., Any], batch_axes: int, *arrays: Array) -> Any:
    """A hook for one object, mapped over the leading axes of its arguments."""
    for _ in range(batch_axes):
        hook = jax.vmap(hook)
    return hook(*arrays)
