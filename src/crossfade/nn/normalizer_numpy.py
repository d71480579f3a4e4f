"""Running mean and variance of observations, in NumPy. Twin: normalizer_jax.py."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class Statistics(NamedTuple):
    """Mean and (biased) variance of every entry of the observations so far, and their number."""

    mean: Float[np.ndarray, " o"]
    var: Float[np.ndarray, " o"]
    count: Float[np.ndarray, ""]  # pyright: ignore[reportIncompatibleMethodOverride]


def start(dim: int, dtype: str) -> Statistics:
    """The statistics of no observations: mean 0, variance 1, so that `normalize` only clips."""
    return Statistics(np.zeros(dim, dtype), np.ones(dim, dtype), np.zeros((), dtype))


def merge(statistics: Statistics, x: Float[np.ndarray, "n o"]) -> Statistics:
    """The statistics of the observations so far together with the rows of `x` (Chan et al. 1979)."""
    return join(statistics, Statistics(x.mean(0), x.var(0), np.array(len(x), statistics.mean.dtype)))


def join(one: Statistics, other: Statistics) -> Statistics:
    """The statistics of two sets of observations together (Chan et al. 1979).

    With the share s = n_2 / (n_1 + n_2) and d = m_2 - m_1: mean = m_1 + s d, var = (1 - s) v_1 + s v_2 + s (1 - s) d^2.
    Written in shares, a count too large to grow gives a moving average; sums of squares would overflow.
    """
    total = one.count + other.count
    weight = other.count / total
    delta = other.mean - one.mean
    return Statistics(
        one.mean + weight * delta,
        (1 - weight) * one.var + weight * other.var + weight * (1 - weight) * delta**2,
        np.asarray(total),
    )


def normalize(statistics: Statistics, x: Float[np.ndarray, "*n o"], clip: float = 10.0) -> Float[np.ndarray, "*n o"]:
    """(x - mean) / sqrt(var + 1e-8), clipped to [-clip, clip], in the precision of the statistics."""
    mean, var, _ = statistics
    return np.clip((x - mean) / np.sqrt(var + mean.dtype.type(1e-8)), -clip, clip)
