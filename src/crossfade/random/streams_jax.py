"""The numbers of `jax.random`, drawn faster.

JAX's CPU version runs the rounds of the cipher as a loop over arrays; written out, they fuse into one pass. Drawing is
then five times faster, and compiling it ten times, which matters where it was a third of both.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, UInt

from ..errors import UsageError
from .threefry_numpy import PARITY, ROTATIONS


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], dtype: str, first: int | Array = 0) -> Float[Array, "..."]:
    """Uniform numbers in [0, 1): random mantissas behind the exponent of 1, less 1.

    Of a longer stream the numbers from `first` on, here and below.
    """
    width, mantissa = jnp.finfo(dtype).bits, jnp.finfo(dtype).nmant
    one = np.ones((), dtype).view(f"uint{width}")
    words = bits(key, math.prod(shape), width, first) >> (width - mantissa) | one
    return (jax.lax.bitcast_convert_type(words, dtype) - 1).reshape(shape)


def gumbel(key: PRNGKeyArray, shape: tuple[int, ...], dtype: str) -> Float[Array, "..."]:
    """Standard Gumbel numbers: -log(-log(u)) with u above 0.

    By a maximum: added, the smallest number would be lost, as XLA makes one constant of it and the 1 taken off before.
    """
    return -jnp.log(-jnp.log(jnp.maximum(uniform(key, shape, dtype), jnp.finfo(dtype).tiny)))


def normal(key: PRNGKeyArray, shape: tuple[int, ...], dtype: str, first: int | Array = 0) -> Float[Array, "..."]:
    """Standard normal numbers: the inverse error function of a uniform in (-1, 1)."""
    low = np.nextafter(np.array(-1, dtype), np.array(0, dtype))
    return jax.lax.erf_inv(uniform(key, shape, dtype, first) * 2 + low) * np.array(math.sqrt(2), dtype)


def bits(key: PRNGKeyArray, size: int, width: int, first: int | Array = 0) -> UInt[Array, " size"]:
    """Words of 32 or 64 random bits: Threefry-2x32 of the counters first .. first + size - 1, below 2**32."""
    words = key if jnp.issubdtype(key.dtype, jnp.unsignedinteger) else jax.random.key_data(key)
    if words.shape != (2,) or size >= 2**32:
        raise UsageError(
            f"expected a Threefry key and fewer than 2**32 numbers, got {words.shape[0]} words and {size}."
        )
    schedule = (words[0], words[1], words[0] ^ words[1] ^ np.uint32(PARITY))
    x0 = jnp.full(size, schedule[0])
    x1 = jnp.arange(size, dtype=jnp.uint32) + (schedule[1] + jnp.asarray(first, jnp.uint32))
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x0 = x0 + x1
            x1 = (x1 << r | x1 >> (32 - r)) ^ x0
        x0 = x0 + schedule[(i + 1) % 3]
        x1 = x1 + (schedule[(i + 2) % 3] + np.uint32(i + 1))
    return x0 ^ x1 if width == 32 else x0.astype(jnp.uint64) << 32 | x1.astype(jnp.uint64)
