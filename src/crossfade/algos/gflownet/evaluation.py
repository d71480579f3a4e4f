"""How good a policy is, exactly: its distribution over objects by dynamic programming, against R / Z."""

import functools
from typing import Any

import numpy as np
from jaxtyping import Float

from ...envs.enumeration import Graph, enumerate_states
from ...envs.registry import make
from . import exact_numpy

LARGEST = 1_000_000  # states; above this an evaluation would take longer than the training it judges


@functools.lru_cache(maxsize=8)
def graph_of(params: Any) -> Graph | None:
    """The states and moves of an environment, or None where there are too many."""
    env = make(params, "numpy")
    return enumerate_states(env) if env.n_states is not None and env.n_states <= LARGEST else None


def exact_metrics(params: Any, log_pf: Float[np.ndarray, "states a"], log_z: float) -> dict[str, float]:
    """Distances of the learned distribution from the target, under `eval/`."""
    graph = graph_of(params)
    assert graph is not None
    p = exact_numpy.terminating_distribution(graph, np.asarray(log_pf, np.float64))
    return {f"eval/{name}": float(value) for name, value in exact_numpy.metrics(graph, p, log_z).items()}
