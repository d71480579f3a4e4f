"""Running mean and variance of observations, in NumPy. Twin: normalizer_jax.py."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Statistics(NamedTuple):
    """What has been seen so far, number by number of an observation."""

    mean: Float[np.ndarray, " o"]
    var: Float[np.ndarray, " o"]
    count: Float[np.ndarray, ""]  # pyright: ignore[reportIncompatibleMethodOverride]


def start(dim: int, dtype: str) -> Statistics:
    """Nothing seen: observations pass as they are, apart from clipping."""
    return Statistics(np.zeros(dim, dtype), np.ones(dim, dtype), np.zeros((), dtype))


def merge(statistics: Statistics, x: Float[np.ndarray, "n o"]) -> Statistics:
    """The statistics with `n` more observations (Chan et al. 1979), as weighted means.

    In this form a count too large to grow turns the mean into a moving average; sums of squares would overflow.
    """
    return join(statistics, Statistics(x.mean(0), x.var(0), np.array(len(x), statistics.mean.dtype)))


def join(one: Statistics, other: Statistics) -> Statistics:
    """The statistics of what either has seen."""
    total = one.count + other.count
    weight = other.count / total
    delta = other.mean - one.mean
    return Statistics(
        one.mean + weight * delta,
        (1 - weight) * one.var + weight * other.var + weight * (1 - weight) * delta**2,
        np.asarray(total),
    )


def normalize(statistics: Statistics, x: Float[np.ndarray, "*n o"], clip: float = 10.0) -> Float[np.ndarray, "*n o"]:
    """Observations in their own mean and deviation, at most `clip` deviations away."""
    mean, var, _ = statistics
    return np.clip((x - mean) / np.sqrt(var + mean.dtype.type(1e-8)), -clip, clip)
