"""Sampling on the host: a NumPy environment driven by a policy in either framework."""

from collections.abc import Callable
from typing import Any

import numpy as np

from .batch import Noise, Trajectories

Act = Callable[[Any, np.ndarray, np.ndarray], np.ndarray]


def sample(choose: Act, env: Any, noise: Noise) -> Trajectories:
    """Trajectories from the source until every one has stopped; the rest, to `env.max_steps`, is padding.

    `choose(state, gumbel, explore)` gives the actions of one time step.
    """
    steps, batch = noise.explore.shape
    state = env.reset((batch,))
    x = np.empty((steps + 1, *state.x.shape), state.x.dtype)
    action = np.full((steps, batch), env.n_actions - 1)
    parent = np.zeros((steps, batch), action.dtype)
    valid = np.zeros((steps, batch), bool)
    x[0] = state.x
    for t in range(steps):
        if state.done.all():
            x[t + 1 :] = state.x
            break
        valid[t] = ~state.done
        chosen = choose(state, noise.gumbel[t], noise.explore[t])
        action[t] = np.where(state.done, env.n_actions - 1, chosen)
        parent[t] = env.parent_of(state, action[t])
        state = env.step(state, action[t])
        x[t + 1] = state.x
    return Trajectories(x, action, parent, valid)
