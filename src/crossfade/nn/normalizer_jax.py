"""Running mean and variance of observations, in JAX. Twin: normalizer_numpy.py."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Statistics(NamedTuple):
    """Mean and (biased) variance of every entry of the observations so far, and their number."""

    mean: Float[Array, " o"]
    var: Float[Array, " o"]
    count: Float[Array, ""]  # pyright: ignore[reportIncompatibleMethodOverride]


def start(dim: int, dtype: str) -> Statistics:
    """The statistics of no observations: mean 0, variance 1, so that `normalize` only clips."""
    return Statistics(jnp.zeros(dim, dtype), jnp.ones(dim, dtype), jnp.zeros((), dtype))


def merge(statistics: Statistics, x: Float[Array, "n o"]) -> Statistics:
    """The statistics of the observations so far together with the rows of `x` (Chan et al. 1979)."""
    x = x.astype(statistics.mean.dtype)
    return join(statistics, Statistics(x.mean(0), x.var(0), jnp.array(len(x), x.dtype)))


def join(one: Statistics, other: Statistics) -> Statistics:
    """The statistics of two sets of observations together (Chan et al. 1979).

    With the share s = n_2 / (n_1 + n_2) and d = m_2 - m_1: mean = m_1 + s d, var = (1 - s) v_1 + s v_2 + s (1 - s) d^2.
    Written in shares, a count too large to grow gives a moving average; sums of squares would overflow.
    """
    count = one.count + other.count
    share = other.count / count
    delta = other.mean - one.mean
    return Statistics(
        one.mean + share * delta,
        (1 - share) * one.var + share * other.var + share * (1 - share) * delta**2,
        count,
    )


def normalize(statistics: Statistics, x: Float[Array, "*n o"], clip: float = 10.0) -> Float[Array, "*n o"]:
    """(x - mean) / sqrt(var + 1e-8), clipped to [-clip, clip], in the precision of the statistics."""
    mean, var, _ = statistics
    spread = lambda v: jnp.broadcast_to(v, x.shape)
    return jnp.clip((x.astype(mean.dtype) - spread(mean)) / spread(jnp.sqrt(var + 1e-8)), -clip, clip)
