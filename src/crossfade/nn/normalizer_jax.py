"""Running mean and variance of observations, in JAX. Twin: normalizer_numpy.py."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Statistics(NamedTuple):
    """Of all rows so far. Every weight is a share of the count, so a count too large to grow makes a moving average."""

    mean: Float[Array, " o"]
    var: Float[Array, " o"]
    count: Float[Array, ""]  # pyright: ignore[reportIncompatibleMethodOverride]


def start(dim: int, dtype: str) -> Statistics:
    """Nothing seen: normalising with it leaves everything as it is, apart from clipping."""
    return Statistics(jnp.zeros(dim, dtype), jnp.ones(dim, dtype), jnp.zeros((), dtype))


def merge(statistics: Statistics, x: Float[Array, "n o"]) -> Statistics:
    """The statistics of the rows so far and these together (Chan et al. 1979, by shares instead of sums)."""
    mean, var, count = statistics
    x = x.astype(mean.dtype)
    share = len(x) / (count + len(x))
    delta = x.mean(0) - mean
    return Statistics(
        mean + share * delta,
        (1 - share) * var + share * x.var(0) + share * (1 - share) * delta**2,
        count + len(x),
    )


def normalize(statistics: Statistics, x: Float[Array, "*n o"], clip: float = 10.0) -> Float[Array, "*n o"]:
    """Rows in units of the deviation from the mean, in the precision of the statistics."""
    mean, var, _ = statistics
    spread = lambda v: jnp.broadcast_to(v, x.shape)
    return jnp.clip((x.astype(mean.dtype) - spread(mean)) / spread(jnp.sqrt(var + 1e-8)), -clip, clip)
