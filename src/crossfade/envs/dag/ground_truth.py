"""What is known about the target of an environment: its states, its objects, exact draws from it, its log Z."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int, Int32

from .base_numpy import State
from .enumeration import Graph, enumerate_states
from .registry import make
from .target import Target, listed

LARGEST = 1_000_000  # states or objects; above this an evaluation would take longer than the training it judges


@dataclass(frozen=True, eq=False)
class Objects:
    """All objects that may stop."""

    x: Int32[np.ndarray, "objects d"]
    log_reward: Float64[np.ndarray, " objects"]

    @functools.cached_property
    def log_z(self) -> float:
        """Log of the sum of all rewards."""
        return float(np.logaddexp.reduce(self.log_reward))

    @functools.cached_property
    def target(self) -> Float64[np.ndarray, " objects"]:
        """R / Z."""
        return np.exp(self.log_reward - self.log_z)

    @property
    def modes(self) -> Bool[np.ndarray, " objects"]:
        """The objects of the largest reward."""
        return self.log_reward >= self.log_reward.max() - 1e-9

    def find(self, x: Int32[np.ndarray, "n d"]) -> Int[np.ndarray, " n"]:
        """The number of each of these."""
        return np.array([self._number[row.tobytes()] for row in np.ascontiguousarray(x)])

    @functools.cached_property
    def _number(self) -> dict[bytes, int]:
        return {row.tobytes(): i for i, row in enumerate(self.x)}


@functools.lru_cache(maxsize=8)
def graph_of(params: Any) -> Graph | None:
    """The states and moves of an environment, or None where there are too many."""
    env = make(params, "numpy")
    return enumerate_states(env) if env.n_states is not None and env.n_states <= LARGEST else None


@functools.lru_cache(maxsize=8)
def objects_of(params: Any) -> Objects | None:
    """All objects of an environment, or None where there are too many; there may be far more states than objects."""
    env = make(params, "numpy")
    if (graph := graph_of(params)) is not None:
        stops = np.flatnonzero(graph.forward_mask[:, -1])
        return Objects(env.state(stops).x, graph.log_reward[stops])
    if (x := params.objects(LARGEST)) is not None:
        return Objects(x, env.log_reward(State(x, np.zeros(len(x), bool))))
    return None


@functools.lru_cache(maxsize=8)
def target_of(params: Any) -> Target | None:
    """Exact draws from R / Z and its log Z, or None where nobody knows how."""
    if (target := params.target) is not None:
        return target
    objects = objects_of(params)
    return None if objects is None else listed(objects.x, objects.log_reward)


@functools.lru_cache(maxsize=8)
def target_draws(params: Any, n: int, key: tuple[int, ...]) -> Int32[np.ndarray, "n d"] | None:
    """Objects of the target, drawn once for all evaluations of a run; the key as numbers."""
    target = target_of(params)
    return None if target is None else target.draw(np.array(key, np.uint32), n)
