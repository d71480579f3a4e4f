"""The parents of objects, and the maximum-entropy backward policy, in NumPy. Twin: parents_jax.py.

That policy is P_B(s | x) = n(s) / n(x), where n counts the trajectories from the source to an object: given the object
they are all equally likely.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int

from ....envs.dag.base_numpy import Env, State
from ..batch import MASKED

LogPaths = Callable[[Int[np.ndarray, "*batch d"]], Float[np.ndarray, "*batch"]]
"""log n of objects."""


def parents_of(
    env: Env, x: Int[np.ndarray, "*batch d"]
) -> tuple[Int[np.ndarray, "*batch parents d"], Int[np.ndarray, "*batch parents"]]:
    """The object before each backward action (x itself where not valid), and the forward action that redoes it."""
    slots = np.broadcast_to(np.arange(env.n_parents), (*x.shape[:-1], env.n_parents))
    state = unfinished(np.broadcast_to(x[..., None, :], (*slots.shape, x.shape[-1])))
    valid = env.backward_mask(unfinished(x))
    before = np.where(valid[..., None], env.unstep(state, slots).x, state.x)
    return before, np.where(valid, env.action_of(state, slots), 0)


def log_path_function(env: Env, table: Float[np.ndarray, " states"] | None) -> LogPaths:
    """log n of objects, read from a table by `env.index`; by the formula of the environment's params without one."""
    if table is None:
        return lambda x: env.params.log_paths(x, np)
    return lambda x: table[env.index(unfinished(x))]


def max_entropy(env: Env, x: Int[np.ndarray, "*batch d"], log_paths: LogPaths) -> Float[np.ndarray, "*batch parents"]:
    """log P_B(s | x) = log n(s) - log n(x) of every backward action; MASKED where it is not valid."""
    log_pb = log_paths(parents_of(env, x)[0]) - log_paths(x)[..., None]
    return np.where(env.backward_mask(unfinished(x)), log_pb, MASKED)


def unfinished(x: Int[np.ndarray, "*batch d"]) -> State:
    """States of these objects, not done."""
    return State(x, np.zeros(x.shape[:-1], bool))
