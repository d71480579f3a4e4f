"""A NumPy world inside compiled JAX programs, by callbacks: the programs wait for the host at every step."""

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, PyTree, Shaped

from .world import ActionSpace, World, WorldParams, make_world


@dataclass(frozen=True)
class HostWorld:
    """The NumPy world of these params, with the face of a JAX one. A world without data and settings."""

    params: WorldParams

    @property
    def observation_dim(self) -> int:
        return _world(self.params).observation_dim

    @property
    def action_space(self) -> ActionSpace:
        return _world(self.params).action_space

    @property
    def start_numbers(self) -> int:
        return _world(self.params).start_numbers

    def begin(self, data: None, settings: None, uniform: Float32[Array, "*batch n"]) -> Any:
        """The states in which episodes begin."""
        like = _examples(self.params)[0]
        return _called(lambda u: _world(self.params).begin(None, None, u), like, uniform.shape[:-1], uniform)

    def observe(self, data: None, settings: None, state: Any) -> Float[Array, "*batch o"]:
        """What a policy sees."""
        batch = _batch(state, _examples(self.params)[0])
        return _called(lambda s: _world(self.params).observe(None, None, s), _examples(self.params)[1], batch, state)

    def mask(self, data: None, settings: None, state: Any) -> Any:
        """Which actions are legal."""
        like, batch = _examples(self.params)[2], _batch(state, _examples(self.params)[0])
        return None if like is None else _called(lambda s: _world(self.params).mask(None, None, s), like, batch, state)

    def step(self, data: None, settings: None, state: Any, action: Shaped[Array, "..."]) -> tuple[Any, Any]:
        """The states after an action, and what came of it."""
        begun, _, _, outcome = _examples(self.params)
        step = lambda s, a: _world(self.params).step(None, None, s, a)
        return _called(step, (begun, outcome), _batch(state, begun), state, action)


@functools.cache
def _world(params: WorldParams) -> World:
    return make_world(params, "numpy")


@functools.cache
def _examples(params: WorldParams) -> tuple[Any, Any, Any, Any]:
    """State, observation, mask and outcome of one environment: the shapes of their arrays."""
    world = _world(params)
    state = world.begin(None, None, np.full((1, world.start_numbers), 0.5, np.float32))
    n = getattr(world.action_space, "dim", None)
    action = np.zeros(1, np.int32) if n is None else np.zeros((1, n), np.float32)
    outcome = world.step(None, None, state, action)[1]
    return state, world.observe(None, None, state), world.mask(None, None, state), outcome


def _batch(state: Any, like: Any) -> tuple[int, ...]:
    """The batch axes of a state, which an example has one of."""
    leaf, example = jax.tree.leaves(state)[0], jax.tree.leaves(like)[0]
    return leaf.shape[: leaf.ndim - example.ndim + 1]


def _called(function: Any, like: Any, batch: tuple[int, ...], *arguments: PyTree) -> Any:
    """What a function on the host gives, in arrays like those of an example."""
    kind = lambda leaf: jax.dtypes.canonicalize_dtype(leaf.dtype)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*batch, *leaf.shape[1:]), kind(leaf)), like)
    fitting = lambda found: jax.tree.map(lambda leaf, as_: np.asarray(leaf, as_.dtype), found, shapes)
    run = lambda *given: fitting(function(*jax.tree.map(np.asarray, given)))
    return jax.pure_callback(run, shapes, *jax.tree.map(jnp.asarray, arguments))
