"""`jax.random` in torch: the same keys give the same numbers. Twin of random_numpy.py.

What a key is, which dtypes are the defaults and how closely each function follows JAX is said once, in the package.
Results live on the device of the key. Values are checked only on the CPU outside torch.compile, where looking is free.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64, Integer, Shaped
from torch import Tensor

from ..errors import UsageError
from . import threefry_torch as threefry, xla_math
from .arguments import (
    Shape,
    as_axis,
    as_shape,
    categorical_shape,
    check_broadcast,
    check_choice,
    check_key_shape,
    seed_words,
    shuffle_rounds,
)

Key = Tensor  # int64 words from 0 to 2**32 - 1 (uint32 is accepted), (*batch, 2)

UNSIGNED_WIDTH = {dtype: width for width, dtype in threefry.UNSIGNED.items()}
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, *UNSIGNED_WIDTH)


def key(seed: int, device: torch.device | str | None = None) -> Int64[Tensor, "2"]:
    """The key of a 64-bit seed.

    Seeds outside 0 .. 2**32 - 1 follow `jax.random.key` with x64 on; with x64 off JAX drops their high word.
    """
    return torch.tensor(seed_words(seed), dtype=torch.int64, device=device)


def split(key: Key, num: int | Sequence[int] = 2) -> Int64[Tensor, "... 2"]:
    """`num` new keys (or an array of keys of shape `num`) from each key: shape (*batch, *num, 2)."""
    keys, batch = _keys(key, "split")
    shape = as_shape(num if isinstance(num, Sequence) else (num,), "split")
    return threefry.split(keys, math.prod(shape)).reshape(*batch, *shape, 2)


def fold_in(key: Key, data: int | Integer[Tensor, "..."]) -> Int64[Tensor, "... 2"]:
    """A new key from a key and an integer from 0 to 2**32 - 1; batches of both broadcast together."""
    keys, batch = _keys(key, "fold_in")
    words = _integers(data, key, "fold_in")
    if threefry.on_host(words) and words.numel() and not 0 <= int(words.min()) <= int(words.max()) <= threefry.WORD:
        raise UsageError(f"fold_in: expected data from 0 to 2**32 - 1, got {int(words.min())} to {int(words.max())}.")
    shape = torch.broadcast_shapes(batch, words.shape)
    return threefry.fold_in(keys.reshape(*batch, 2).expand(*shape, 2), words.expand(shape))


def bits(key: Key, shape: Sequence[int] = (), dtype: torch.dtype = torch.uint32) -> Shaped[Tensor, "..."]:
    """Random bits as unsigned integers of 8, 16, 32 or 64 bits."""
    if dtype not in UNSIGNED_WIDTH:
        raise UsageError(f"bits: expected an unsigned integer dtype, got {dtype}.")
    keys, batch = _keys(key, "bits")
    shape = as_shape(shape, "bits")
    return threefry.bits(keys, math.prod(shape), UNSIGNED_WIDTH[dtype]).reshape(batch + shape)


def uniform(
    key: Key,
    shape: Sequence[int] = (),
    dtype: torch.dtype = torch.float32,
    minval: float | Tensor = 0.0,
    maxval: float | Tensor = 1.0,
) -> Float[Tensor, "..."]:
    """Uniform numbers in [minval, maxval); the bounds broadcast to `shape`."""
    shape, dtype = as_shape(shape, "uniform"), _float_dtype(dtype, "uniform")
    floats = _unit(key, shape, dtype, "uniform")
    if isinstance(minval, float) and isinstance(maxval, float) and (minval, maxval) == (0.0, 1.0):
        return floats
    low, high = _floats(minval, floats, "uniform"), _floats(maxval, floats, "uniform")
    check_broadcast(low.shape, shape, "uniform")
    check_broadcast(high.shape, shape, "uniform")
    return torch.maximum(low, xla_math.fma(floats, high - low, low))


def normal(key: Key, shape: Sequence[int] = (), dtype: torch.dtype = torch.float32) -> Float[Tensor, "..."]:
    """Standard normal numbers, by the inverse error function of a uniform in (-1, 1)."""
    dtype = _float_dtype(dtype, "normal")
    low = -1 + torch.finfo(dtype).eps / 2  # the number after -1
    u = _unit(key, as_shape(shape, "normal"), dtype, "normal").mul_(2).add_(low)
    return xla_math.erf_inv(u).mul_(math.sqrt(2))


def gumbel(key: Key, shape: Sequence[int] = (), dtype: torch.dtype = torch.float32) -> Float[Tensor, "..."]:
    """Standard Gumbel numbers, -log(-log(u)) (JAX's mode "low", its default)."""
    dtype = _float_dtype(dtype, "gumbel")
    u = _unit(key, as_shape(shape, "gumbel"), dtype, "gumbel").add_(torch.finfo(dtype).tiny)
    return xla_math.log(xla_math.log(u).neg_()).neg_()


def exponential(key: Key, shape: Sequence[int] = (), dtype: torch.dtype = torch.float32) -> Float[Tensor, "..."]:
    """Exponential numbers of rate 1, -log1p(-u)."""
    u = _unit(key, as_shape(shape, "exponential"), _float_dtype(dtype, "exponential"), "exponential")
    return xla_math.log1p(u.neg_()).neg_()


def bernoulli(key: Key, p: float | Tensor = 0.5, shape: Sequence[int] | None = None) -> Bool[Tensor, "..."]:
    """True with probability `p`, drawn in the dtype of `p` (float32 for a Python number)."""
    p = _probabilities(p, key, "bernoulli")
    shape = tuple(p.shape) if shape is None else as_shape(shape, "bernoulli")
    check_broadcast(p.shape, shape, "bernoulli")
    if threefry.on_host(p) and p.numel() and not 0 <= float(p.min()) <= float(p.max()) <= 1:
        raise UsageError(f"bernoulli: expected probabilities from 0 to 1, got {float(p.min())} to {float(p.max())}.")
    return _unit(key, shape, p.dtype, "bernoulli") < p


def categorical(
    key: Key, logits: Float[Tensor, "..."], axis: int = -1, shape: Sequence[int] | None = None
) -> Int64[Tensor, "..."]:
    """Indices along `axis` with probability softmax(logits), by the Gumbel-max trick."""
    axis, sizes, noise = categorical_shape(logits.shape, axis, shape)
    chosen = torch.argmax(gumbel(key, noise, logits.dtype) + logits.detach(), dim=axis)
    return chosen.reshape((*key.shape[:-1], *sizes))


def randint(
    key: Key, shape: Sequence[int], minval: int | Tensor, maxval: int | Tensor, dtype: torch.dtype = torch.int32
) -> Integer[Tensor, "..."]:
    """Integers in [minval, maxval); the bounds broadcast to `shape` and are clipped to what `dtype` can hold.

    Where maxval <= minval the answer is minval. Narrow dtypes are drawn in 32 bits.
    """
    shape = as_shape(shape, "randint")
    if dtype not in _INTEGERS:
        raise UsageError(f"randint: expected an integer dtype, got {dtype}.")
    low, high = _integers(minval, key, "randint"), _integers(maxval, key, "randint")
    check_broadcast(low.shape, shape, "randint")
    check_broadcast(high.shape, shape, "randint")
    info = torch.iinfo(dtype)
    if info.bits < 32:
        low = low.to(torch.int32).to(torch.int64).clamp(info.min, info.max)
        high = high.to(torch.int32).to(torch.int64).clamp(info.min, info.max + 1)
        info = torch.iinfo(torch.int32)
    largest = min(info.max, 2**63 - 1)
    beyond = high > largest if info.max == largest else torch.zeros_like(high, dtype=torch.bool)
    low, high = low.clamp(info.min, largest), high.clamp(info.min, largest)
    span = torch.where(high > low, high - low + beyond.to(torch.int64), 1)
    keys, batch = _keys(split(key), "randint")
    words = threefry.signed_bits(keys, math.prod(shape), max(info.bits, 32)).reshape((*batch, *shape))
    upper, lower = words.unbind(len(batch) - 1)
    if info.bits == 64:
        offset = _offset64(upper, lower, span)
    else:
        offset = _offset32(upper.to(torch.int64) & threefry.WORD, lower.to(torch.int64) & threefry.WORD, span)
    result = low + offset
    return result.view(dtype) if dtype == torch.uint64 else result.to(dtype)


def permutation(
    key: Key, x: int | Shaped[Tensor, "..."], axis: int = 0, independent: bool = False
) -> Shaped[Tensor, "..."]:
    """`x` (or 0 .. x-1) shuffled along `axis`: whole slices, or with `independent` each line by itself."""
    _, batch = _keys(key, "permutation")
    if isinstance(x, int):
        return _shuffled_indices(key, x)
    if not isinstance(x, Tensor) or x.ndim == 0:
        raise UsageError(f"permutation: expected an integer or a tensor with axes, got {x!r}.")
    axis = as_axis(axis, x.ndim, "permutation")
    if independent and x.ndim > 1:
        return _shuffle(key, x, axis)
    return _take(x, _shuffled_indices(key, x.shape[axis]), axis, len(batch))


def choice(
    key: Key,
    a: int | Shaped[Tensor, "..."],
    shape: Sequence[int] = (),
    replace: bool = True,
    p: Sequence[float] | Tensor | None = None,
    axis: int = 0,
) -> Shaped[Tensor, "..."]:
    """Items of `a` along `axis` (or of 0 .. a-1), with probabilities `p` or all alike."""
    _, batch = _keys(key, "choice")
    shape = as_shape(shape, "choice")
    if isinstance(a, Tensor) and a.ndim > 0:
        axis = as_axis(axis, a.ndim, "choice")
        population = a.shape[axis]
    else:
        population = int(_integers(a, key, "choice"))
    draws = math.prod(shape)
    if draws > 0:
        check_choice(draws, population, replace)
    if draws == 0:
        indices = torch.zeros((*batch, *shape), dtype=torch.int64, device=key.device)
    elif p is None:
        indices = randint(key, shape, 0, population) if replace else permutation(key, population)[..., :draws]
    else:
        indices = _weighted(key, _weights(p, key, population), shape, draws, replace)
    indices = indices.reshape((*batch, *shape)).to(torch.int64)
    return _take(a, indices, axis, len(batch)) if isinstance(a, Tensor) and a.ndim > 0 else indices


def _weighted(key: Key, p: Float[Tensor, " n"], shape: Shape, draws: int, replace: bool) -> Tensor:
    """Indices of items with probabilities `p`: by inverting the cumulative sum, or by the Gumbel top-k trick."""
    if replace:
        cumulative = xla_math.prefix_sum(p)
        return torch.searchsorted(cumulative, cumulative[-1] * (1 - _unit(key, shape, p.dtype, "choice")))
    scores = gumbel(key, tuple(p.shape), p.dtype) + xla_math.log(p)
    return torch.argsort(scores, dim=-1, descending=True, stable=True)[..., :draws]


def _shuffled_indices(key: Key, size: int) -> Int64[Tensor, "... size"]:
    return _shuffle(key, torch.arange(size, device=key.device), 0)


def _shuffle(key: Key, x: Tensor, axis: int) -> Tensor:
    """`x` sorted along `axis` by random words, as often as ties demand; one result per key."""
    _, batch = _keys(key, "permutation")
    result = x.expand(*batch, *x.shape).clone()
    for _ in range(shuffle_rounds(x.numel())):
        key, subkey = split(key).unbind(-2)
        keys, _ = _keys(subkey, "permutation")
        words = threefry.signed_bits(keys, x.numel(), 32).reshape((*batch, *x.shape))
        order = torch.argsort(words ^ -(2**31), dim=len(batch) + axis, stable=True)  # unsigned order of signed words
        result = torch.take_along_dim(result, order, dim=len(batch) + axis)
    return result


def _take(x: Tensor, indices: Tensor, axis: int, batch: int) -> Tensor:
    """`x[indices]` along `axis`; the first `batch` axes of `indices` come first in the result."""
    taken = x.movedim(axis, 0)[indices]  # (*batch, *shape, *rest)
    shape = range(batch, indices.ndim)
    return taken.movedim(tuple(shape), tuple(axis + i for i in shape))


def _keys(key: Any, function: str) -> tuple[Int64[Tensor, "keys 2"], Shape]:
    """The keys in one row, and the shape of their batch."""
    if not isinstance(key, Tensor) or key.dtype not in (torch.int64, torch.uint32):
        kind = f"{key.dtype} {type(key).__name__}" if hasattr(key, "dtype") else repr(key)
        raise UsageError(f"{function}: expected an int64 or uint32 torch key, got {kind}. Make one with key(seed).")
    check_key_shape(key.shape, function)
    return key.to(torch.int64).reshape(-1, 2), tuple(key.shape[:-1])


def _unit(key: Key, shape: Shape, dtype: torch.dtype, function: str) -> Tensor:
    keys, batch = _keys(key, function)
    return threefry.unit(keys, math.prod(shape), dtype).reshape(batch + shape)


def _offset32(upper: Tensor, lower: Tensor, span: Tensor) -> Tensor:
    """(upper * 2**32 + lower) modulo a span of at most 2**32, in JAX's wrapping 32-bit arithmetic."""
    multiplier = 2**16 % span
    multiplier = ((multiplier * multiplier) & threefry.WORD) % span
    return (((upper % span) * multiplier + lower % span) & threefry.WORD) % span


def _offset64(upper: Tensor, lower: Tensor, span: Tensor) -> Tensor:
    """(upper * 2**64 + lower) modulo a span, in JAX's wrapping 64-bit arithmetic on bit patterns."""
    multiplier = _remainder64(torch.full_like(span, 2**32), span)
    multiplier = _remainder64(multiplier * multiplier, span)
    return _remainder64(_remainder64(upper, span) * multiplier + _remainder64(lower, span), span)


def _remainder64(x: Tensor, span: Tensor) -> Tensor:
    """Unsigned remainder of int64 bit patterns.

    A span of 2**63 or more is a negative pattern and goes in at most once; a smaller one first divides half of x.
    """
    small = span.clamp(min=1)
    half = (x >> 1) & (2**63 - 1)
    rest = x - ((half // small) << 1) * small
    rest = torch.where(_below(rest, small), rest, rest - small)
    return torch.where(span > 0, rest, torch.where(_below(x, span), x, x - span))


def _below(x: Tensor, y: Tensor) -> Tensor:
    """Unsigned x < y of int64 bit patterns."""
    return (x ^ -(2**63)) < (y ^ -(2**63))


def _float_dtype(dtype: torch.dtype, function: str) -> torch.dtype:
    if dtype not in (torch.float32, torch.float64):
        raise UsageError(f"{function}: expected dtype torch.float32 or torch.float64, got {dtype}.")
    return dtype


def _floats(x: Any, like: Tensor, function: str) -> Tensor:
    if isinstance(x, Tensor):
        if x.dtype == torch.bool or x.is_complex():
            raise UsageError(f"{function}: expected real numbers, got a tensor of {x.dtype}.")
        return x.detach().to(like)
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise UsageError(f"{function}: expected real numbers or a tensor, got {x!r}.")
    return torch.tensor(x, dtype=like.dtype, device=like.device)


def _integers(x: Any, key: Key, function: str) -> Int64[Tensor, "..."]:
    if isinstance(x, Tensor):
        if x.dtype not in _INTEGERS or x.dtype == torch.uint64:
            raise UsageError(f"{function}: expected integers that fit in int64, got a tensor of {x.dtype}.")
        return x.to(key.device, torch.int64)
    try:
        value = operator.index(x)
    except TypeError:
        raise UsageError(f"{function}: expected an integer or an integer tensor, got {x!r}.") from None
    if isinstance(x, bool) or not -(2**63) <= value < 2**63:
        raise UsageError(f"{function}: expected an integer that fits in int64, got {x!r}.")
    return torch.tensor(value, dtype=torch.int64, device=key.device)


def _probabilities(p: Any, key: Key, function: str) -> Tensor:
    """`p` as float32 or float64; Python numbers are float32."""
    if isinstance(p, Tensor):
        _float_dtype(p.dtype, function)
        return p.detach().to(key.device)
    values = p if isinstance(p, Sequence) else [p]
    if not all(isinstance(value, float) for value in values):
        raise UsageError(f"{function}: expected probabilities as floating-point numbers, got {p!r}.")
    return torch.tensor(p, dtype=torch.float32, device=key.device)


def _weights(p: Any, key: Key, population: int) -> Float[Tensor, " n"]:
    weights = _probabilities(p, key, "choice")
    if weights.shape != (population,):
        sizes = tuple(weights.shape)
        raise UsageError(f"choice: expected one probability per item, shape ({population},), got {sizes}.")
    if threefry.on_host(weights) and not (weights.isfinite().all() and (weights >= 0).all() and weights.any()):
        raise UsageError(f"choice: expected probabilities of at least 0, some above, got {weights.tolist()}.")
    return weights
