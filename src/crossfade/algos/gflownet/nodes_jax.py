"""Which states become nodes, in JAX. Twin: nodes_numpy.py. What a node is, batch.py says.

With `parents`, which flow matching needs, each node also points to its parents' nodes.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int

from ...envs.base_jax import Env, State
from .batch import Batch, Trajectories
from .distinct import find


def table(env: Env, parents: bool = False) -> Batch:
    """Every state of the environment as a node, and no trajectories yet: made once, used by `at_table`."""
    x = env.state(jnp.arange(env.n_states)).x
    nodes = _nodes(env, x)
    if not parents:
        return nodes
    before, action = _parents(env, x)
    return nodes._replace(parent_node=env.index(_open(before)), parent_action=action)


def at_table(trajectories: Trajectories, env: Env, table: Batch) -> Batch:
    """Trajectories over the nodes of `table`."""
    return _placed(table, env.index(_open(trajectories.x)), trajectories)


def dense(trajectories: Trajectories, env: Env, parents: bool = False) -> Batch:
    """One node per visited state, padding included."""
    x = trajectories.x.reshape(-1, trajectories.x.shape[-1])
    node = jnp.arange(len(x)).reshape(trajectories.x.shape[:-1])
    return _placed(_with_parents(env, x, parents), node, trajectories)


def unique(trajectories: Trajectories, env: Env, capacity: int, parents: bool = False) -> Batch:
    """One node per distinct visited state, filled up with copies of the source to `capacity` nodes.

    More distinct states than that are an error, raised by Equinox when the program runs.
    """
    found = find(trajectories.x, env)
    node = eqx.error_if(
        found.node,
        found.total > capacity,
        f"expected at most {capacity} distinct states in a batch, got more. Raise it, or use execution=dense.",
    )
    return dense(trajectories._replace(x=found.objects(capacity)), env, parents)._replace(node=node)


def _open(x: Int[Array, "*batch d"]) -> State:
    return State(x, jnp.zeros(x.shape[:-1], bool))


def _nodes(env: Env, x: Int[Array, "nodes d"]) -> Batch:
    state = _open(x)
    return Batch(
        observation=env.observe(state),
        forward_mask=env.forward_mask(state),
        backward_mask=env.backward_mask(state),
        log_reward=env.log_reward(state),
        node=None,
        action=None,
        parent=None,
        valid=None,
    )


def _parents(env: Env, x: Int[Array, "nodes d"]) -> tuple[Int[Array, "nodes parents d"], Int[Array, "nodes parents"]]:
    """The object before each backward action (anything where that is not valid), and the action that redoes it."""
    slots = jnp.broadcast_to(jnp.arange(env.n_parents), (len(x), env.n_parents))
    state = _open(jnp.broadcast_to(x[:, None], (*slots.shape, x.shape[-1])))
    valid = env.backward_mask(_open(x))
    before = jnp.where(valid[..., None], env.unstep(state, slots).x, state.x)
    return before, jnp.where(valid, env.action_of(state, slots), 0)


def _with_parents(env: Env, x: Int[Array, "nodes d"], parents: bool) -> Batch:
    """Nodes for x; with `parents`, followed by nodes for the parents of each."""
    if not parents:
        return _nodes(env, x)
    before, action = _parents(env, x)
    nodes = _nodes(env, jnp.concatenate([x, before.reshape(-1, x.shape[-1])]))
    place = len(x) + jnp.arange(action.size).reshape(action.shape)
    unread = jnp.zeros((action.size, env.n_parents), action.dtype)  # the parents' own parents
    return nodes._replace(parent_node=jnp.concatenate([place, unread]), parent_action=jnp.concatenate([action, unread]))


def _placed(nodes: Batch, node: Int[Array, "..."], trajectories: Trajectories) -> Batch:
    return nodes._replace(node=node, action=trajectories.action, parent=trajectories.parent, valid=trajectories.valid)
