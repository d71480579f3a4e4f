"""Random orders of steps, in JAX. Twin: shuffling_numpy.py.

Not `jax.random.permutation`, which sorts pairs, twice where there are many: on a CPU that takes ten times as long.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, PRNGKeyArray

from .streams_jax import bits


def shuffled(key: PRNGKeyArray, n: int) -> Int32[Array, " n"]:
    """A random permutation of 0 .. n-1: the order of random 64-bit words that hold the numbers in their low bits."""
    with jax.enable_x64(True):  # for these words alone, whatever the precision of the rest
        low = jnp.uint64((1 << (n - 1).bit_length()) - 1)
        words = jnp.sort(bits(key, n, 64) & ~low | jnp.arange(n, dtype=jnp.uint64))
        return (words & low).astype(jnp.int32)
