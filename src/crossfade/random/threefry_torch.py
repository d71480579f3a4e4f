"""The Threefry-2x32 block cipher in torch, as JAX counts with it. Twin of threefry_numpy.py.

On a CPU tensor outside torch.compile the work is done by the NumPy twin: torch has no unsigned arithmetic and costs
about 2 us per operation, so in int32 the rounds took 260 us for a few numbers against NumPy's 45 us, and 14 ms for
2**20 against 10 ms. Everywhere else the words travel as int64 from 0 to 2**32 - 1.
"""

import numpy as np
import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor

from ..errors import UsageError
from . import threefry_numpy
from .threefry_numpy import PARITY, ROTATIONS

WORD = 0xFFFFFFFF
UNSIGNED = {8: torch.uint8, 16: torch.uint16, 32: torch.uint32, 64: torch.uint64}


def on_host(x: Tensor) -> bool:
    """Whether NumPy may do the work on the memory of `x`."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def host_words(keys: Int64[Tensor, "*batch 2"]) -> np.ndarray:
    """The key words as NumPy's uint32."""
    words = keys.numpy()
    if words.size and words.view(np.uint64).max() > WORD:
        raise UsageError(f"expected key words from 0 to 2**32 - 1, got {words.min()} to {words.max()}.")
    return words.astype(np.uint32)


def encrypt(key0: Tensor, key1: Tensor, x0: Tensor, x1: Tensor) -> tuple[Tensor, Tensor]:
    """Twenty rounds of Threefry on the counter words `x0, x1` (int64, 0 to 2**32 - 1)."""
    schedule = (key0, key1, key0 ^ key1 ^ PARITY)
    x0, x1 = (x0 + schedule[0]) & WORD, (x1 + schedule[1]) & WORD
    for i in range(5):
        for r in ROTATIONS[i % 2]:
            x0 = (x0 + x1) & WORD
            x1 = (((x1 << r) | (x1 >> (32 - r))) & WORD) ^ x0
        x0 = (x0 + schedule[(i + 1) % 3]) & WORD
        x1 = (x1 + schedule[(i + 2) % 3] + (i + 1)) & WORD
    return x0, x1


def count(keys: Int64[Tensor, "keys 2"], size: int) -> tuple[Tensor, Tensor]:
    """The two output words of counters 0 .. size-1 under each key."""
    counter = torch.arange(size, device=keys.device)
    return encrypt(keys[:, :1], keys[:, 1:], counter >> 32, counter & WORD)


def split(keys: Int64[Tensor, "keys 2"], size: int) -> Int64[Tensor, "keys size 2"]:
    """New keys from each key."""
    if on_host(keys):
        return torch.from_numpy(threefry_numpy.split(host_words(keys), size).astype(np.int64))
    return torch.stack(count(keys, size), dim=-1)


def fold_in(keys: Int64[Tensor, "*batch 2"], data: Int64[Tensor, "*batch"]) -> Int64[Tensor, "*batch 2"]:
    """New keys from each key and its word of data."""
    if on_host(keys):
        folded = threefry_numpy.fold_in(host_words(keys), data.numpy().astype(np.uint32))
        return torch.from_numpy(folded.astype(np.int64))
    return torch.stack(encrypt(keys[..., 0], keys[..., 1], torch.zeros_like(data), data), dim=-1)


def signed_bits(keys: Int64[Tensor, "keys 2"], size: int, width: int) -> Shaped[Tensor, "keys size"]:
    """Random bits for arithmetic: int32 or int64 with the bit pattern of the unsigned number."""
    if on_host(keys):
        return torch.from_numpy(threefry_numpy.bits(host_words(keys), size, width).view(f"int{width}"))
    x0, x1 = count(keys, size)
    return (x0 << 32) | x1 if width == 64 else _low_word_as_int32(x0 ^ x1)


def bits(keys: Int64[Tensor, "keys 2"], size: int, width: int) -> Shaped[Tensor, "keys size"]:
    """Unsigned integers of 8, 16, 32 or 64 random bits; the narrow ones keep the low bits of 32."""
    if on_host(keys):
        return torch.from_numpy(threefry_numpy.bits(host_words(keys), size, width))
    if width == 64:
        return signed_bits(keys, size, 64).view(torch.uint64)
    x0, x1 = count(keys, size)
    return ((x0 ^ x1) & (2**width - 1)).to(UNSIGNED[width])


def unit(keys: Int64[Tensor, "keys 2"], size: int, dtype: torch.dtype) -> Float[Tensor, "keys size"]:
    """Uniform numbers in [0, 1): random mantissas behind the exponent of 1, less 1."""
    single = dtype == torch.float32
    if on_host(keys):
        return torch.from_numpy(
            threefry_numpy.unit(host_words(keys), size, np.dtype("float32" if single else "float64"))
        )
    if single:
        mantissa = (signed_bits(keys, size, 32) >> 9) & (2**23 - 1)
        return (mantissa | 0x3F800000).view(torch.float32) - 1
    mantissa = (signed_bits(keys, size, 64) >> 12) & (2**52 - 1)
    return (mantissa | (0x3FF << 52)).view(torch.float64) - 1


def _low_word_as_int32(x: Tensor) -> Tensor:
    return (x - ((x >> 31) << 32)).to(torch.int32)  # 2**31 and above become negative, without an overflowing cast
