"""Integer codes and one-hot vectors, for any leading batch axes. The JAX twin is encoding_jax.py."""

import numpy as np
from jaxtyping import Bool, Int

from .base_numpy import Array


def ravel(digits: Int[Array, "*batch d"], radix: int) -> Int[Array, "*batch"]:
    """The number written by these digits, the first one the most significant."""
    return digits @ radix ** np.arange(digits.shape[-1] - 1, -1, -1)


def unravel(number: Int[Array, "*batch"], radix: int, d: int) -> Int[Array, "*batch d"]:
    """The d digits of a number, the first one the most significant."""
    return (number[..., None] // radix ** np.arange(d - 1, -1, -1) % radix).astype(np.int32)


def one_hot(digits: Int[Array, "*batch d"], radix: int) -> Bool[Array, "*batch d_radix"]:
    """For each digit a row of `radix` flags, laid end to end; a negative digit has none."""
    flags = digits[..., None] == np.arange(radix)
    return flags.reshape(*digits.shape[:-1], -1)
