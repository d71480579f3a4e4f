"""Running mean and variance of observations, in NumPy. Twin: normalizer_jax.py."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Statistics(NamedTuple):
    """Mean and variance of the observations so far, component by component.

    Every weight is a share of the count, so a count too large to grow makes the mean a moving average; sums of squares
    would overflow.
    """

    mean: Float[np.ndarray, " o"]
    var: Float[np.ndarray, " o"]
    count: Float[np.ndarray, ""]  # pyright: ignore[reportIncompatibleMethodOverride]


def start(dim: int, dtype: str) -> Statistics:
    """Nothing seen: observations pass as they are, apart from clipping."""
    return Statistics(np.zeros(dim, dtype), np.ones(dim, dtype), np.zeros((), dtype))


def merge(statistics: Statistics, x: Float[np.ndarray, "n o"]) -> Statistics:
    """The statistics of what was seen so far and of `n` more observations."""
    return join(statistics, Statistics(x.mean(0), x.var(0), np.array(len(x), statistics.mean.dtype)))


def join(one: Statistics, other: Statistics) -> Statistics:
    """The statistics of what either has seen (Chan et al. 1979), w being the share of the other in the count.

    mean = mean_1 + w d, var = (1 - w) var_1 + w var_2 + w (1 - w) d^2, with d = mean_2 - mean_1.
    """
    count = one.count + other.count
    share = other.count / count
    delta = other.mean - one.mean
    return Statistics(
        one.mean + share * delta,
        (1 - share) * one.var + share * other.var + share * (1 - share) * delta**2,
        np.asarray(count),
    )


def normalize(statistics: Statistics, x: Float[np.ndarray, "*n o"], clip: float = 10.0) -> Float[np.ndarray, "*n o"]:
    """(x - mean) / sqrt(var + 1e-8), clipped to [-clip, clip], in the precision of the statistics."""
    mean, var, _ = statistics
    return np.clip((x - mean) / np.sqrt(var + mean.dtype.type(1e-8)), -clip, clip)
