"""The Threefry-2x32 block cipher (Salmon et al., 2011) in NumPy's uint32 SIMD loops, as JAX counts with it.

The torch twin of this file runs the same rounds; on the CPU it calls this one.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Shaped, UInt32

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA
CHUNK = 1 << 15  # words per pass: four such arrays stay in a core's L2 cache; 2**20 at once is 1.5x slower

_LEFT = {r: np.array(r, np.uint32) for group in ROTATIONS for r in group}  # arrays: a Python int costs 0.3 us more
_RIGHT = {r: np.array(32 - r, np.uint32) for group in ROTATIONS for r in group}


def encrypt(
    key0: UInt32[np.ndarray, "*#block"],
    key1: UInt32[np.ndarray, "*#block"],
    x0: UInt32[np.ndarray, "*block"],
    x1: UInt32[np.ndarray, "*block"],
) -> None:
    """Twenty rounds of Threefry on the counter words `x0, x1`, in place."""
    schedule = (key0, key1, key0 ^ key1 ^ np.uint32(PARITY))
    shifted = np.empty_like(x1)
    x0 += schedule[0]
    x1 += schedule[1]
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            np.add(x0, x1, x0)
            np.left_shift(x1, _LEFT[r], shifted)
            np.right_shift(x1, _RIGHT[r], x1)
            np.bitwise_or(x1, shifted, x1)
            np.bitwise_xor(x1, x0, x1)
        x0 += schedule[(i + 1) % 3]
        x1 += schedule[(i + 2) % 3] + np.uint32(i + 1)


def count(
    keys: UInt32[np.ndarray, "keys 2"], size: int
) -> Iterator[tuple[slice, slice, UInt32[np.ndarray, "rows columns"], UInt32[np.ndarray, "rows columns"]]]:
    """The two output words of counters 0 .. size-1 under each key, a cache-sized rectangle of them at a time."""
    rows, columns = max(1, CHUNK // max(1, size)), min(size, CHUNK)
    for row in range(0, len(keys), rows):
        some = keys[row : row + rows]
        for column in range(0, size, max(1, columns)):
            counter = np.arange(column, min(column + columns, size), dtype=np.uint64)
            x0 = np.empty((len(some), len(counter)), np.uint32)
            x1 = np.empty((len(some), len(counter)), np.uint32)
            x0[:] = counter >> np.uint64(32)
            x1[:] = counter  # keeps the low word
            encrypt(some[:, :1], some[:, 1:], x0, x1)
            yield slice(row, row + len(some)), slice(column, column + len(counter)), x0, x1


def split(keys: UInt32[np.ndarray, "keys 2"], size: int) -> UInt32[np.ndarray, "keys size 2"]:
    """New keys from each key."""
    out = np.empty((len(keys), size, 2), np.uint32)
    for rows, columns, x0, x1 in count(keys, size):
        out[rows, columns, 0] = x0
        out[rows, columns, 1] = x1
    return out


def fold_in(keys: UInt32[np.ndarray, "*#batch 2"], data: UInt32[np.ndarray, "*#batch"]) -> UInt32[np.ndarray, "... 2"]:
    """New keys from each key and its word of data."""
    shape = np.broadcast_shapes(keys.shape[:-1], data.shape)
    x0, x1 = (
        np.zeros((*shape, 1), np.uint32),
        np.empty((*shape, 1), np.uint32),
    )  # an axis more: scalars warn on overflow
    x1[..., 0] = data
    encrypt(keys[..., :1], keys[..., 1:], x0, x1)
    return np.concatenate([x0, x1], axis=-1)


def bits(keys: UInt32[np.ndarray, "keys 2"], size: int, width: int) -> Shaped[np.ndarray, "keys size"]:
    """Unsigned integers of 8, 16, 32 or 64 random bits; the narrow ones keep the low bits of 32."""
    out = np.empty((len(keys), size), f"uint{width}")
    for rows, columns, x0, x1 in count(keys, size):
        if width == 64:
            out[rows, columns] = x0
            out[rows, columns] <<= np.uint64(32)
            out[rows, columns] |= x1
        else:
            x0 ^= x1
            out[rows, columns] = x0
    return out


def unit(keys: UInt32[np.ndarray, "keys 2"], size: int, dtype: np.dtype) -> Float[np.ndarray, "keys size"]:
    """Uniform numbers in [0, 1): random mantissas behind the exponent of 1, less 1."""
    width, mantissa = 8 * dtype.itemsize, np.finfo(dtype).nmant
    words = bits(keys, size, width)
    words >>= words.dtype.type(width - mantissa)
    words |= np.ones((), dtype).view(words.dtype)
    floats = words.view(dtype)
    floats -= dtype.type(1)
    return floats
