"""Sampling on the host: a NumPy environment driven by a policy in either framework."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ...envs.base_numpy import State
from . import nodes_numpy
from .batch import Batch, Noise, Trajectories

Act = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]


def sample(choose: Act, env: Any, noise: Noise) -> Trajectories:
    """Trajectories from the source until every one has stopped; the rest, to `env.max_steps`, is padding.

    `choose(state, gumbel, explore)` gives the actions of one time step.
    """
    steps, batch = noise.explore.shape
    state = env.reset((batch,))
    x = np.empty((steps + 1, *state.x.shape), state.x.dtype)
    action = np.full((steps, batch), env.n_actions - 1)
    valid = np.zeros((steps, batch), bool)
    x[0] = state.x
    for t in range(steps):
        if state.done.all():
            x[t + 1 :] = state.x
            break
        valid[t] = ~state.done
        chosen = choose(state, noise.gumbel[t], noise.explore[t])
        action[t] = np.where(state.done, env.n_actions - 1, chosen)
        state = env.step(state, action[t])
        x[t + 1] = state.x
    parent = env.parent_of(State(x[:-1], np.zeros(action.shape, bool)), action)
    return Trajectories(x, action, parent, valid)


def to_batch(trajectories: Trajectories, env: Any, execution: str, table: Batch | None, parents: bool) -> Batch:
    """Trajectories over the nodes that the execution asks for; their number is the same for every batch."""
    if table is not None:
        return nodes_numpy.at_table(trajectories, env, table)
    if execution == "unique":
        return nodes_numpy.unique(trajectories, env, trajectories.x[..., 0].size, parents)
    return nodes_numpy.dense(trajectories, env, parents)
