"""How many trajectories lead to each object: what the maximum-entropy backward policy is made of."""

import numpy as np
from jaxtyping import Float64

from ....envs.dag.base_numpy import Env
from ....envs.dag.ground_truth import graph_of
from ....errors import UsageError
from ..evaluation import exact_numpy


def log_path_table(env: Env) -> Float64[np.ndarray, " states"] | None:
    """log n of every state by `env.index`; None where the environment's params have the formula `log_paths(x, xp)`."""
    if hasattr(env.params, "log_paths"):
        return None
    graph = graph_of(env.params)
    if graph is None:
        raise UsageError(
            f"backward=maxent counts the trajectories to every object, so it needs an environment with few enough "
            f"states to list, or params with `log_paths(x, xp)`; got {env}. Use a smaller instance, or "
            f"backward=shared, learned, uniform or fixed."
        )
    return exact_numpy.log_path_counts(graph)
