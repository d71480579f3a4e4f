"""Environments of any NumPy world side by side: as arrays, or as a list whose members are stepped one by one."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float32, Shaped

from .world import BoundWorld, Outcome

State = TypeVar("State")


class Vectorized:
    """Environments as arrays: one call of the world steps all of them."""

    def __init__(self, world: BoundWorld, state: Any):
        self.world, self.state = world, state

    def observe(self) -> Float[np.ndarray, "envs o"]:
        return self.world.observe(self.state)

    def mask(self) -> Bool[np.ndarray, "envs n"] | None:
        return self.world.mask(self.state)

    def step(self, action: Shaped[np.ndarray, "envs ..."]) -> Outcome:
        self.state, outcome = self.world.step(self.state, action)
        return outcome

    def restart(self, where: Bool[np.ndarray, " envs"], uniform: Float32[np.ndarray, "envs numbers"]) -> None:
        fresh = self.world.begin(uniform)
        along = lambda x: where.reshape(-1, *[1] * (x.ndim - 1))
        self.state = map_state(lambda new, old: np.where(along(old), new, old), fresh, self.state)


class OneByOne:
    """Environments as a list, one call of the world for each, as code that is not vectorised steps them."""

    def __init__(self, world: BoundWorld, state: Any):
        own = lambda i: map_state(lambda column: column[i : i + 1], state)
        self.envs = [Vectorized(world, own(i)) for i in range(len(_first(state)))]

    @property
    def state(self) -> Any:
        return _joined([env.state for env in self.envs])

    def observe(self) -> Float[np.ndarray, "envs o"]:
        return np.concatenate([env.observe() for env in self.envs])

    def mask(self) -> Bool[np.ndarray, "envs n"] | None:
        masks = [mask for env in self.envs if (mask := env.mask()) is not None]
        return np.concatenate(masks) if masks else None

    def step(self, action: Shaped[np.ndarray, "envs ..."]) -> Outcome:
        return _joined([env.step(action[i : i + 1]) for i, env in enumerate(self.envs)])

    def restart(self, where: Bool[np.ndarray, " envs"], uniform: Float32[np.ndarray, "envs numbers"]) -> None:
        for i in np.flatnonzero(where):
            self.envs[i].restart(where[i : i + 1], uniform[i : i + 1])


def map_state(function: Callable[..., Any], *states: State) -> State:
    """The function on each array of states of the same form."""
    first: Any = states[0]
    if isinstance(first, tuple):
        return type(first)(*(map_state(function, *parts) for parts in zip(*states, strict=True)))  # pyright: ignore
    return function(*states)


def _first(state: Any) -> np.ndarray:
    """The first array of a state."""
    return _first(state[0]) if isinstance(state, tuple) else state


def _joined(parts: list[Any]) -> Any:
    return map_state(lambda *columns: np.concatenate(columns), *parts)
