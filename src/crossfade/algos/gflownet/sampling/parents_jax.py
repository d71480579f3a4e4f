"""The parents of objects, and the maximum-entropy backward policy, in JAX. Twin: parents_numpy.py.

That policy is P_B(s | x) = n(s) / n(x), where n counts the trajectories from the source to an object: given the object
they are all equally likely.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ....envs.dag.base_jax import Env, State
from ..batch import MASKED

LogPaths = Callable[[Int[Array, "*batch d"]], Float[Array, "*batch"]]
"""log n of objects."""


def parents_of(
    env: Env, x: Int[Array, "*batch d"]
) -> tuple[Int[Array, "*batch parents d"], Int[Array, "*batch parents"]]:
    """The object before each backward action (x itself where not valid), and the forward action that redoes it."""
    slots = jnp.broadcast_to(jnp.arange(env.n_parents), (*x.shape[:-1], env.n_parents))
    state = unfinished(jnp.broadcast_to(x[..., None, :], (*slots.shape, x.shape[-1])))
    valid = env.backward_mask(unfinished(x))
    before = jnp.where(valid[..., None], env.unstep(state, slots).x, state.x)
    return before, jnp.where(valid, env.action_of(state, slots), 0)


def log_path_function(env: Env, table: Float[Array, " states"] | None) -> LogPaths:
    """log n of objects, read from a table by `env.index`; by the formula of the environment's params without one."""
    if table is None:
        return lambda x: env.params.log_paths(x, jnp)
    return lambda x: table[env.index(unfinished(x))]


def max_entropy(env: Env, x: Int[Array, "*batch d"], log_paths: LogPaths) -> Float[Array, "*batch parents"]:
    """log P_B(s | x) = log n(s) - log n(x) of every backward action; MASKED where it is not valid."""
    log_pb = log_paths(parents_of(env, x)[0]) - log_paths(x)[..., None]
    return jnp.where(env.backward_mask(unfinished(x)), log_pb, MASKED)


def unfinished(x: Int[Array, "*batch d"]) -> State:
    """States of these objects, not done."""
    return State(x, jnp.zeros(x.shape[:-1], bool))
