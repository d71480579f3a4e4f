"""Which states become nodes, in NumPy. Twin: nodes_jax.py. What a node is, batch.py says.

With `parents`, which flow matching needs, every node also points to the nodes of its parents. With `log_paths`, the log
number of trajectories from the source to objects, every node has the maximum-entropy P_B.
"""

import numpy as np

from ....envs.dag.base_numpy import Env
from ....errors import UsageError
from ..batch import Batch, Trajectories
from .parents_numpy import LogPaths, max_entropy, parents_of, unfinished


def table(env: Env, parents: bool = False, log_paths: LogPaths | None = None) -> Batch:
    """Every state of the environment as a node, and no trajectories yet: made once, used by `at_table`."""
    x = env.state(np.arange(env.n_states or 0)).x  # refuses where they cannot be numbered
    nodes = _nodes(env, x, log_paths)
    if not parents:
        return nodes
    before, action = parents_of(env, x)
    return nodes._replace(parent_node=env.index(unfinished(before)), parent_action=action)


def at_table(trajectories: Trajectories, env: Env, table: Batch) -> Batch:
    """Trajectories over the nodes of `table`."""
    return _placed(table, env.index(unfinished(trajectories.x)), trajectories)


def dense(trajectories: Trajectories, env: Env, parents: bool = False, log_paths: LogPaths | None = None) -> Batch:
    """One node per visited state, padding included."""
    x = trajectories.x.reshape(-1, trajectories.x.shape[-1])
    node = np.arange(len(x)).reshape(trajectories.x.shape[:-1])
    return _placed(_with_parents(env, x, parents, log_paths), node, trajectories)


def unique(
    trajectories: Trajectories, env: Env, capacity: int, parents: bool = False, log_paths: LogPaths | None = None
) -> Batch:
    """One node per distinct visited state, filled up with copies of the source to `capacity` nodes.

    A fixed number keeps programs from being compiled anew for every batch; more distinct states are an error.
    """
    x = trajectories.x.reshape(-1, trajectories.x.shape[-1])
    distinct, node = np.unique(x, axis=0, return_inverse=True)
    if len(distinct) > capacity:
        raise UsageError(
            f"expected at most {capacity} distinct states in a batch, got {len(distinct)}. Raise the capacity, or use "
            f"execution=dense."
        )
    filler = np.broadcast_to(env.reset().x, (capacity - len(distinct), x.shape[-1]))
    nodes = _with_parents(env, np.concatenate([distinct, filler]), parents, log_paths)
    return _placed(nodes, node.reshape(trajectories.x.shape[:-1]), trajectories)


def _nodes(env: Env, x: np.ndarray, log_paths: LogPaths | None) -> Batch:
    state = unfinished(x)
    return Batch(
        observation=env.observe(state),
        forward_mask=env.forward_mask(state),
        backward_mask=env.backward_mask(state),
        log_reward=env.log_reward(state),
        node=None,
        action=None,
        parent=None,
        valid=None,
        log_pb=None if log_paths is None else max_entropy(env, x, log_paths),
    )


def _with_parents(env: Env, x: np.ndarray, parents: bool, log_paths: LogPaths | None) -> Batch:
    """Nodes for x; with `parents`, followed by nodes for the parents of each."""
    if not parents:
        return _nodes(env, x, log_paths)
    before, action = parents_of(env, x)
    nodes = _nodes(env, np.concatenate([x, before.reshape(-1, x.shape[-1])]), log_paths)
    extra = np.zeros((action.size, env.n_parents), action.dtype)
    place = len(x) + np.arange(action.size).reshape(action.shape)
    return nodes._replace(parent_node=np.concatenate([place, extra]), parent_action=np.concatenate([action, extra]))


def _placed(nodes: Batch, node: np.ndarray, trajectories: Trajectories) -> Batch:
    return nodes._replace(node=node, action=trajectories.action, parent=trajectories.parent, valid=trajectories.valid)
