"""Initial parameters, drawn in NumPy and handed to either framework, so that both start from the same bits."""

import math

import numpy as np
from scipy.special import ndtri

from ...random import random_numpy as random
from .config import PPOConfig

TRUNCATED = 0.87962566103423978  # deviation of a standard normal that is cut at 2
BELOW_MINUS_TWO = 0.022750131948179195  # probability that it lies below -2


def shapes(config: PPOConfig, observation_dim: int, n_actions: int) -> dict[str, tuple[int, ...]]:
    """Every parameter's shape, by its name in torch and in JAX."""
    found: dict[str, tuple[int, ...]] = {}

    def chain(name: str, widths: list[int]) -> None:
        for i in range(len(widths) - 1):
            found[f"{name}.{i}.weight"], found[f"{name}.{i}.bias"] = (widths[i + 1], widths[i]), (widths[i + 1],)

    published = config.network == "seed"
    trunk = [256, 256] if published else [config.hidden] * config.layers
    chain("trunk", [observation_dim, *trunk])
    for i, width in enumerate(trunk if published else []):
        found[f"norms.{i}.weight"] = found[f"norms.{i}.bias"] = (width,)
    for name, outputs in (("actor", n_actions), ("critic", 1)):
        chain(name, [trunk[-1], *([128] if published else []), outputs])
    return found


def parameters(
    config: PPOConfig, observation_dim: int, n_actions: int, key: np.ndarray, dtype: str = "float32"
) -> dict[str, np.ndarray]:
    """`mlp`: orthogonal weights of gain sqrt(2), 0.01 for the actor and 1 for the critic. `seed`: LeCun's normal.

    Biases are 0. Draws are made in float64 and rounded, so that runs of either precision start at the same place.
    """
    drawn: dict[str, np.ndarray] = {}
    for i, (name, shape) in enumerate(shapes(config, observation_dim, n_actions).items()):
        if name.endswith("bias"):
            value = np.zeros(shape)
        elif name.startswith("norms"):
            value = np.ones(shape)
        elif config.network == "seed":
            value = _lecun(random.fold_in(key, i), shape)
        else:
            value = {"actor": 0.01, "critic": 1.0}.get(name.split(".")[0], math.sqrt(2)) * _orthogonal(
                random.fold_in(key, i), shape
            )
        drawn[name] = value.astype(dtype)
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
