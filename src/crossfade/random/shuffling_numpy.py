"""Random orders of steps, in NumPy. Twin: shuffling_jax.py."""

import numpy as np
from jaxtyping import Int64

from .random_numpy import Key, bits


def shuffled(key: Key, n: int) -> Int64[np.ndarray, " n"]:
    """A random permutation of 0 .. n-1: the order of random 64-bit words that hold the numbers in their low bits."""
    carried = np.uint64((1 << (n - 1).bit_length()) - 1)
    words = bits(key, (n,), np.uint64) & ~carried | np.arange(n, dtype=np.uint64)
    return (np.sort(words) & carried).astype(np.int64)
