"""Initial parameters, drawn in NumPy and handed to either framework, so that both start from the same bits."""

import math

import numpy as np
from scipy.special import ndtri

from ...random import random_numpy as random
from .config import PPOConfig, continuous

TRUNCATED = 0.87962566103423978  # deviation of a standard normal that is cut at 2
BELOW_MINUS_TWO = 0.022750131948179195  # probability that it lies below -2


def parameters(
    config: PPOConfig, observation_dim: int, n_outputs: int, n_free: int, key: np.ndarray
) -> dict[str, np.ndarray]:
    """`orthogonal`: weights of gain sqrt(2), of 0.01 for the actor's output, of 1 for the critic's. `lecun`: a normal.

    Biases are 0 and log_std is `config.log_std_start`. Draws are made in float64 and rounded, so that runs of either
    precision start at the same place.
    """
    drawn: dict[str, np.ndarray] = {}
    form = config.architecture
    for i, (name, shape) in enumerate(form.shapes(observation_dim, n_outputs, n_free).items()):
        if name == "log_std":
            value = np.full(shape, continuous(config).log_std_start)
        elif name.endswith("bias"):
            value = np.zeros(shape)
        elif name.startswith("norms"):
            value = np.ones(shape)
        elif form.initial == "lecun":
            value = _lecun(random.fold_in(key, i), shape)
        else:
            outputs = {f"actor.{len(form.head)}.weight": 0.01, f"critic.{len(form.head)}.weight": 1.0}
            value = outputs.get(name, math.sqrt(2)) * _orthogonal(random.fold_in(key, i), shape)
        drawn[name] = value.astype(config.dtype)
    return drawn


def _lecun(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A normal cut at two deviations, with variance 1 / fan_in."""
    uniform = random.uniform(key, shape, "float64", BELOW_MINUS_TWO, 1 - BELOW_MINUS_TWO)
    return ndtri(uniform) / (TRUNCATED * math.sqrt(shape[1]))


def _orthogonal(key: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Orthonormal rows or columns, whichever are fewer, uniform among all such (Mezzadri 2007)."""
    rows, columns = max(shape), min(shape)
    q, r = np.linalg.qr(random.normal(key, (rows, columns), "float64"))
    q = q * np.sign(np.diag(r))
    return q if shape[0] == rows else q.T
