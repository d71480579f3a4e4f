"""Standard normal numbers in NumPy, the bits of jax.random, fast if there are many.

A float32 number of `random_numpy.normal` follows from 23 random bits, by a hundred operations. A process that has drawn
2**23 of them has spent as much as a table of all of them costs (32 MB); from then on it looks them up.
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float32, UInt32

from ....random import random_numpy as random, xla_math

BITS = 23


class Normals:
    """A source of normal numbers, with its table as soon as it is worth it."""

    def __init__(self):
        self.drawn = 0
        self.table: np.ndarray | None = None

    def draw(self, key: UInt32[np.ndarray, "2"], shape: Sequence[int]) -> Float32[np.ndarray, "..."]:
        """Standard normal numbers, those of `random_numpy.normal`."""
        if self.table is None and self.drawn < 2**BITS:
            self.drawn += math.prod(shape)
            return random.normal(key, shape)
        if self.table is None:
            self.table = all_normals()
        return self.table[random.bits(key, shape) >> np.uint32(32 - BITS)]


def all_normals() -> Float32[np.ndarray, " n"]:
    """The normal number of each of the 2**23 uniform ones."""
    low = np.nextafter(np.float32(-1), np.float32(0))
    uniform = np.arange(2**BITS, dtype=np.uint32).astype(np.float32) * np.float32(2.0**-BITS)
    return np.float32(math.sqrt(2)) * xla_math.erf_inv(uniform * np.float32(2) + low)


NORMALS = Normals()
"""That of this process."""
