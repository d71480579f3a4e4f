"""How values of JAX's dtypes are carried by torch, which computes with few unsigned integers.

uint16, uint32   as the numbers, in the next wider signed type; every result is cut to the width
uint64           as int64 with the same bits
keys             as one int64 with the bits of both words, so that arrays of keys have their own shape
all others       as torch's dtype of the same name
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from ...errors import NoCounterpart
from ..transfer_torch import numpy_to_tensor

WORD = 0xFFFFFFFF
_SAME = ("bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")
CARRIERS: dict[str, torch.dtype] = {name: getattr(torch, name) for name in (*_SAME, "complex64", "complex128")}
CARRIERS |= {"uint16": torch.int32, "uint32": torch.int64, "uint64": torch.int64}
MASKS = {"uint16": 0xFFFF, "uint32": WORD}
TORCH = {name: getattr(torch, name) for name in CARRIERS}  # what the user sees
NAMES = {dtype: name for name, dtype in TORCH.items()}


def shape_of(variable: Any) -> tuple[int, ...]:
    """The shape of a variable of a jaxpr."""
    return tuple(variable.aval.shape)


def name_of(aval: Any) -> str:
    """`float32`, `uint64`, ..., or `key`."""
    if jnp.issubdtype(aval.dtype, jax.dtypes.prng_key):
        if str(aval.dtype) != "key<fry>":
            raise NoCounterpart(
                f"expected keys of threefry2x32 streams, got {aval.dtype}. Make them with "
                f"jax.random.key(seed, impl='threefry2x32')."
            )
        return "key"
    return np.dtype(aval.dtype).name


def carrier(aval: Any) -> torch.dtype:
    """The torch dtype that carries values of this type."""
    name = name_of(aval)
    if name != "key" and name not in CARRIERS:
        raise NoCounterpart(f"torch has nothing that computes as JAX's {name}. Cast to a wider dtype.")
    return torch.int64 if name == "key" else CARRIERS[name]


def cut(x: Tensor, name: str) -> Tensor:
    """A result of arithmetic modulo the width of its dtype."""
    return x & MASKS[name] if name in MASKS else x


def entered(x: Tensor, name: str) -> Tensor:
    """A tensor as torch has it, carried."""
    if name == "key":
        return packed(x)
    return x.view(torch.int64) if x.dtype == torch.uint64 else x.to(CARRIERS[name])


def left(x: Tensor, name: str) -> Tensor:
    """A carried tensor as torch has it; a key as the words `crossfade.random` draws from."""
    if name == "key":
        return words(x)
    return x.view(torch.uint64) if name == "uint64" else x.to(TORCH[name])


def constant(value: Any, aval: Any) -> Tensor:
    """A constant of a jaxpr, carried."""
    name = name_of(aval)
    if name == "key":
        return packed(numpy_to_tensor(np.asarray(jax.random.key_data(value)).astype(np.int64)))
    carrier(aval)
    return entered(numpy_to_tensor(np.asarray(value, np.dtype(aval.dtype))), name)


def packed(words: Tensor) -> Tensor:
    """Keys of two words, on the last axis, as one int64 each."""
    words = words.to(torch.int64)
    return (words[..., 0] << 32) | (words[..., 1] & WORD)


def words(keys: Tensor) -> Tensor:
    """The two words of each key on a new last axis, as int64 from 0 to 2**32 - 1."""
    return torch.stack(((keys >> 32) & WORD, keys & WORD), dim=-1)


def bits(x: Tensor, name: str) -> Tensor:
    """A carried tensor with the bits, and the width, of its own dtype."""
    if name == "uint32":
        return (x - ((x >> 31) << 32)).to(torch.int32)  # no cast overflows
    return (x - ((x >> 15) << 16)).to(torch.int16) if name == "uint16" else x


def from_bits(x: Tensor, name: str) -> Tensor:
    """The carried tensor whose dtype has the bits of `x`."""
    if name in MASKS:
        return x.view(torch.int32 if name == "uint32" else torch.int16).to(CARRIERS[name]) & MASKS[name]
    return x.view(CARRIERS[name])
