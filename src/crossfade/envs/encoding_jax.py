"""Integer codes and one-hot vectors of ONE object. The NumPy twin is encoding_numpy.py."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


def ravel(digits: Int[Array, " d"], radix: int) -> Int[Array, ""]:
    """The number written by these digits, the first one the most significant."""
    return digits @ _powers(radix, len(digits))


def unravel(number: Int[Array, ""], radix: int, d: int) -> Int[Array, " d"]:
    """The d digits of a number, the first one the most significant."""
    return number.astype(jnp.int32) // _powers(radix, d) % radix


def one_hot(digits: Int[Array, " d"], radix: int) -> Bool[Array, " d_radix"]:
    """For each digit a row of `radix` flags, laid end to end; a negative digit has none."""
    return (digits[:, None] == jnp.arange(radix)[None, :]).reshape(-1)


def _powers(radix: int, d: int) -> Int[np.ndarray, " d"]:
    return (radix ** np.arange(d - 1, -1, -1)).astype(np.int32)
