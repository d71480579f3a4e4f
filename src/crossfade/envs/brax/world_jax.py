"""An environment of Brax or of MuJoCo Playground as a world. `params.py` states it."""

import contextlib
import functools
import io
from collections import namedtuple
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32

from ...errors import UsageError, nearest
from ...loading import load_attribute
from ..world import BareOutcome, Continuous
from .params import BraxParams

PLAYGROUND = "playground"
BITS = 24
"""Of a float32 in [0, 1)."""


class Episode(NamedTuple):
    """Episodes under way."""

    leaves: Any  # a NamedTuple of all arrays in Brax's own state
    t: Any  # (*batch,) int32: steps taken


@functools.cache
def make_env(params: BraxParams) -> Any:
    """The environment, without wrappers."""
    if ":" in params.env:
        found = load_attribute(params.env)
        return found() if isinstance(found, type) or not hasattr(found, "reset") else found
    known, make = (_playground if params.backend == PLAYGROUND else _brax)(params)
    if params.env not in known:
        near = nearest(params.env, known)
        raise UsageError(f"env: expected MODULE:ATTR or one of {', '.join(sorted(known))}, got {params.env!r}.{near}")
    return make()


def _brax(params: BraxParams) -> tuple[Collection[str], Callable[[], Any]]:
    """Names of environments, and how the one of these parameters is made."""
    try:
        known = import_module("brax.envs")._envs
    except ModuleNotFoundError as error:
        raise UsageError("this environment needs Brax: pip install 'crossfade[brax]'.") from error
    return known, lambda: known[params.env](backend=params.backend)


def _playground(params: BraxParams) -> tuple[Collection[str], Callable[[], Any]]:
    """The same of MuJoCo Playground; its other back end is for GPUs."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # MJX prints that its back end for GPUs is not installed
            registry: Any = import_module("mujoco_playground").registry
    except ModuleNotFoundError as error:
        raise UsageError("backend=playground needs MuJoCo Playground: pip install playground.") from error
    return registry.ALL_ENVS, lambda: registry.load(params.env, config_overrides={"impl": "jax"})


@functools.cache
def _structure(params: BraxParams) -> tuple[Any, Any]:
    """How a state of Brax is taken apart: its tree, and the NamedTuple of its leaves."""
    state = jax.eval_shape(make_env(params).reset, jax.ShapeDtypeStruct((2,), jnp.uint32))
    leaves, tree = jax.tree.flatten(state)
    return tree, namedtuple("Leaves", [f"leaf{i}" for i in range(len(leaves))])


@functools.cache
def _size(params: BraxParams) -> Any:
    """Of an observation; Playground traces a whole reset to tell it."""
    return make_env(params).observation_size


def _unflat(params: BraxParams, state: Episode) -> Any:
    """Brax's own state."""
    return jax.tree.unflatten(_structure(params)[0], list(state.leaves))


@dataclass(frozen=True)
class Brax:
    """See `BraxParams`. A world without data and settings."""

    params: BraxParams
    start_numbers: ClassVar[int] = 2
    keeps_observations: ClassVar[bool] = True

    def __post_init__(self) -> None:
        make_env(self.params)  # what is wrong with it is said here

    @property
    def observation_dim(self) -> int:
        size = _size(self.params)
        if not isinstance(size, int):
            raise UsageError(f"{self.params.env}: expected observations in one array, got {size}. Wrap it so.")
        return size

    @property
    def action_space(self) -> Continuous:
        return Continuous(make_env(self.params).action_size)

    def begin(self, data: None, settings: None, uniform: Float32[Array, "*batch 2"]) -> Episode:
        """Episodes where `reset` puts them."""
        key = jnp.floor(uniform * 2**BITS).astype(jnp.uint32)
        batch = key.shape[:-1]
        state = self._each(make_env(self.params).reset, batch)(key)
        return Episode(_structure(self.params)[1](*jax.tree.leaves(state)), jnp.zeros(batch, jnp.int32))

    def observe(self, data: None, settings: None, state: Episode) -> Float[Array, "*batch o"]:
        """What the environment shows."""
        return _unflat(self.params, state).obs

    def mask(self, data: None, settings: None, state: Episode) -> None:
        """None: every action is legal."""
        return None

    def step(
        self, data: None, settings: None, state: Episode, action: Float[Array, "*batch n"]
    ) -> tuple[Episode, BareOutcome]:
        """The environments after an action."""
        act = lambda before, action: make_env(self.params).step(before, action)
        after = self._each(act, state.t.shape)(_unflat(self.params, state), jnp.clip(action, -1, 1))
        t, done = state.t + 1, after.done.astype(bool)
        outcome = BareOutcome(after.reward, done, (t >= self.params.limit) & ~done)
        return Episode(_structure(self.params)[1](*jax.tree.leaves(after)), t), outcome

    @staticmethod
    def _each(function: Any, batch: tuple[int, ...]) -> Any:
        for _ in batch:
            function = jax.vmap(function)
        return function


@dataclass(frozen=True)
class HostBrax:
    """The same, from NumPy to NumPy, for loops on the host: JAX computes here too."""

    params: BraxParams
    start_numbers: ClassVar[int] = 2
    keeps_observations: ClassVar[bool] = True

    @property
    def observation_dim(self) -> int:
        return Brax(self.params).observation_dim

    @property
    def action_space(self) -> Continuous:
        return Brax(self.params).action_space

    def begin(self, data: None, settings: None, uniform: Float32[np.ndarray, "*batch 2"]) -> Episode:
        """Episodes where `reset` puts them."""
        return jax.device_get(_begin(Brax(self.params), uniform))

    def observe(self, data: None, settings: None, state: Episode) -> Float[np.ndarray, "*batch o"]:
        """What the environment shows."""
        return np.asarray(_unflat(self.params, state).obs)

    def mask(self, data: None, settings: None, state: Episode) -> None:
        """None: every action is legal."""
        return None

    def step(
        self, data: None, settings: None, state: Episode, action: Float[np.ndarray, "*batch n"]
    ) -> tuple[Episode, BareOutcome]:
        """The environments after an action."""
        return jax.device_get(_step(Brax(self.params), state, action))


_begin = jax.jit(lambda world, uniform: world.begin(None, None, uniform), static_argnums=0)
_step = jax.jit(lambda world, state, action: world.step(None, None, state, action), static_argnums=0)
