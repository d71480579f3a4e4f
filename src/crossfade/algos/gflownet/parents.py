"""The parents of objects, in JAX, and the backward policy that takes all ways to an object alike.

That is P_B(s | s') = n(s) / n(s') with n the number of ways from the source: maximum entropy over trajectories.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...envs.dag.base_jax import Env, State
from .policy_jax import MASKED

LogPaths = Callable[[Int[Array, "*batch d"]], Float[Array, "*batch"]]
"""log n of objects."""


def previous(env: Env, x: Int[Array, "nodes d"]) -> tuple[Int[Array, "nodes parents d"], Int[Array, "nodes parents"]]:
    """The object before each backward action (anything where that is not valid), and the action that redoes it."""
    slots = jnp.broadcast_to(jnp.arange(env.n_parents), (len(x), env.n_parents))
    state = opened(jnp.broadcast_to(x[:, None], (*slots.shape, x.shape[-1])))
    valid = env.backward_mask(opened(x))
    before = jnp.where(valid[..., None], env.unstep(state, slots).x, state.x)
    return before, jnp.where(valid, env.action_of(state, slots), 0)


def max_entropy(env: Env, x: Int[Array, "nodes d"], log_paths: LogPaths) -> Float[Array, "nodes parents"]:
    """log P_B of each backward action, n(parent) / n(x); about -1e30 where it is not valid."""
    before, _ = previous(env, x)
    log_pb = log_paths(before) - log_paths(x)[:, None]
    return jnp.where(env.backward_mask(opened(x)), log_pb, MASKED)


def counted(env: Env, table: Float[Array, " states"] | None) -> LogPaths:
    """log n looked up by `env.index`, or by the formula of the environment's params where there is no table."""
    if table is None:
        return lambda x: env.params.log_paths(x, jnp)
    return lambda x: table[env.index(opened(x))]


def opened(x: Int[Array, "*batch d"]) -> State:
    """States of these objects, not done."""
    return State(x, jnp.zeros(x.shape[:-1], bool))
