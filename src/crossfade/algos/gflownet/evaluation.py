"""How good a policy is, exactly: its distribution over objects by dynamic programming, against R / Z."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

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


class Evaluation(NamedTuple):
    """What a policy turned out to be."""

    metrics: dict[str, float]  # distances from the target, under `eval/`
    distribution: Float[np.ndarray, " states"] | None = None  # over objects, as numbered by the environment


def evaluate(params: Any, log_pf: Callable[[], np.ndarray], log_z: float | None) -> Evaluation:
    """Exact distances from the target where the environment can be enumerated, else nothing."""
    graph = graph_of(params)
    if graph is None:
        return Evaluation({})
    p = exact_numpy.terminating_distribution(graph, np.asarray(log_pf(), np.float64))
    metrics = exact_numpy.metrics(graph, p, graph.log_z if log_z is None else log_z)
    if log_z is None:
        del metrics["log_z_error"]
    return Evaluation({f"eval/{name}": float(value) for name, value in metrics.items()}, p)
