"""Sampling as PyTorch code does it today: a list of environment objects, each stepped on its own (mode `torch`)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ....envs.dag.base_numpy import State
from ..batch import Noise, Trajectories


class Walker:
    """One environment with a state, and the trajectory it has walked."""

    def __init__(self, env: Any):
        self.env = env
        self.state: State = env.reset()
        self.x, self.actions, self.parents = [self.state.x], [], []

    @property
    def done(self) -> bool:
        return bool(self.state.done)

    def step(self, action: int) -> None:
        self.actions.append(action)
        self.parents.append(int(self.env.parent_of(self.state, np.int64(action))))
        self.state = self.env.step(self.state, np.int64(action))
        self.x.append(self.state.x)


def sample(choose: Callable[[State, np.ndarray, np.ndarray], np.ndarray], env: Any, noise: Noise) -> Trajectories:
    """Trajectories from the source until every one has stopped; no longer than the longest of them.

    `choose(states, gumbel, explore)` gives the actions of those that are still walking.
    """
    walkers = [Walker(env) for _ in range(noise.explore.shape[1])]
    for t in range(noise.explore.shape[0]):
        rows = [b for b, walker in enumerate(walkers) if not walker.done]
        if not rows:
            break
        states = State(np.stack([walkers[b].state.x for b in rows]), np.zeros(len(rows), bool))
        for b, action in zip(rows, choose(states, noise.gumbel[t, rows], noise.explore[t, rows]), strict=True):
            walkers[b].step(int(action))
    steps = max(len(walker.actions) for walker in walkers)
    return Trajectories(
        x=np.stack([walker.x + walker.x[-1:] * (steps + 1 - len(walker.x)) for walker in walkers], 1),
        action=_padded([walker.actions for walker in walkers], steps, env.n_actions - 1),
        parent=_padded([walker.parents for walker in walkers], steps, 0),
        valid=_padded([[True] * len(walker.actions) for walker in walkers], steps, False),
    )


def _padded(rows: list[list], steps: int, filler: int | bool) -> np.ndarray:
    return np.array([row + [filler] * (steps - len(row)) for row in rows]).T
