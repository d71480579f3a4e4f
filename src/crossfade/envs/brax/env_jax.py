"""A world as an environment of Brax, and Brax's PPO on it."""

import contextlib
import io
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree, Shaped

from ...errors import UsageError
from ..world import BoundWorld, Continuous, Outcome, WorldParams, make_world

try:
    with contextlib.redirect_stdout(io.StringIO()):  # MJX prints that its back end for GPUs is not installed
        envs: Any = import_module("brax.envs.base")
        training: Any = import_module("brax.envs.wrappers.training")
except ModuleNotFoundError as error:
    raise UsageError("this needs Brax: pip install 'crossfade[brax]'.") from error

ENDS = ("reward", "terminated", "truncated")
"""What every outcome has; the other numbers in it are Brax's metrics."""


class WorldEnv(envs.Env):
    """One environment of a world with continuous actions, or as many as `reset` is given keys.

    Episodes are cut by Brax, after its `episode_length`: a world that cuts them itself must do so no earlier.
    """

    def __init__(self, params: WorldParams, data: Any = None, settings: Any = None):
        self.world = BoundWorld(make_world(params, "jax"), data, settings)
        space = self.world.world.action_space
        if not isinstance(space, Continuous):
            raise UsageError(f"Brax: expected a world with continuous actions, got {space}. Train it with trainer=own.")
        self._actions = space.dim

    @property
    def observation_size(self) -> int:
        return self.world.world.observation_dim

    @property
    def action_size(self) -> int:
        return self._actions

    @property
    def backend(self) -> str:
        return "crossfade"

    def reset(self, rng: Shaped[Array, "*batch 2"]) -> Any:
        """Episodes that begin, of keys as Brax has them: two integers each."""
        numbers = self.world.world.start_numbers
        draw = lambda key: jax.random.uniform(key, (numbers,), jnp.float32)
        for _ in rng.shape[:-1]:
            draw = jax.vmap(draw)
        state = self.world.begin(draw(rng))
        zero = jnp.zeros(rng.shape[:-1], jnp.float32)
        action = jnp.zeros((*rng.shape[:-1], self._actions), jnp.float32)
        outcome = jax.eval_shape(lambda: self.world.step(state, action)[1])
        metrics = {name: zero for name in _metrics(outcome, zero.shape)}
        return envs.State(state, self.world.observe(state).astype(jnp.float32), zero, zero, metrics)

    def step(self, state: Any, action: Float[Array, "*batch n"]) -> Any:
        """What comes of an action; keys that wrappers have put into `info` and `metrics` stay there."""
        after, outcome = self.world.step(state.pipeline_state, action)
        metrics = _metrics(outcome, state.done.shape)
        return state.replace(
            pipeline_state=after,
            obs=self.world.observe(after).astype(jnp.float32),
            reward=outcome.reward.astype(jnp.float32),
            done=outcome.terminated.astype(jnp.float32),
            metrics={**state.metrics, **{name: number.astype(jnp.float32) for name, number in metrics.items()}},
        )


def _metrics(outcome: Outcome, batch: tuple[int, ...]) -> dict[str, Any]:
    """Numbers of an outcome, one for each environment, by their names."""
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(outcome)[0]:
        name = "/".join(str(getattr(part, "name", getattr(part, "key", getattr(part, "idx", part)))) for part in path)
        if name not in ENDS and leaf.shape == batch:
            found[name] = leaf
    return found


def wrap(env: Any, episode_length: int = 1000, action_repeat: int = 1, randomization_fn: Any = None) -> Any:
    """Brax's wrappers but for `VmapWrapper`: a world computes all its environments at once, which is faster."""
    if randomization_fn is not None:
        raise UsageError("randomization_fn: expected None, got a function. A world varies itself: see its params.")
    return training.AutoResetWrapper(training.EpisodeWrapper(env, episode_length, action_repeat))


def train(env: WorldEnv, **options: Any) -> tuple[Any, Any, Any]:
    """`brax.training.agents.ppo.train` on a world, with its own options: (make_policy, parameters, metrics)."""
    ppo = import_module("brax.training.agents.ppo.train")
    with replicating(), jax.numpy_rank_promotion("allow"):
        return ppo.train(environment=env, wrap_env_fn=wrap, **options)


@contextlib.contextmanager
def replicating() -> Iterator[None]:
    """Puts back `jax.device_put_replicated` for as long as Brax runs, where JAX no longer has it and Brax calls it."""
    if hasattr(jax, "device_put_replicated"):
        yield
        return
    setattr(jax, "device_put_replicated", _replicated)  # noqa: B010  JAX's stubs do not know the name
    try:
        yield
    finally:
        delattr(jax, "device_put_replicated")


def _replicated(tree: PyTree, devices: list[Any]) -> PyTree:
    """A copy of every array on each device, along a new first axis."""
    along = NamedSharding(Mesh(np.array(devices), ("i",)), PartitionSpec("i"))
    return jax.tree.map(lambda leaf: jax.device_put(jnp.stack([jnp.asarray(leaf)] * len(devices)), along), tree)
