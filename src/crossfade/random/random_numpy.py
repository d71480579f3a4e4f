"""`jax.random` in NumPy: the same keys give the same numbers. Twin of random_torch.py.

What a key is, which dtypes are the defaults and how closely each function follows JAX is said once, in the package.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int64, Integer, Shaped, UInt32
from numpy.typing import DTypeLike

from ..errors import UsageError
from . import threefry_numpy as threefry, xla_math
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

Key = np.ndarray  # uint32, (*batch, 2)
Numbers = float | int | np.generic | np.ndarray


def key(seed: int) -> UInt32[np.ndarray, "2"]:
    """The key of a 64-bit seed.

    Seeds outside 0 .. 2**32 - 1 follow `jax.random.key` with x64 on; with x64 off JAX drops their high word.
    """
    return np.array(seed_words(seed), np.uint32)


def split(key: Key, num: int | Sequence[int] = 2) -> UInt32[np.ndarray, "... 2"]:
    """`num` new keys (or an array of keys of shape `num`) from each key: shape (*batch, *num, 2)."""
    keys, batch = _keys(key, "split")
    shape = as_shape(num if isinstance(num, Sequence) else (num,), "split")
    return threefry.split(keys, math.prod(shape)).reshape(*batch, *shape, 2)


def fold_in(key: Key, data: Numbers) -> UInt32[np.ndarray, "... 2"]:
    """A new key from a key and an integer from 0 to 2**32 - 1; batches of both broadcast together."""
    _keys(key, "fold_in")
    words = _integers(data, "fold_in")
    if words.size and not 0 <= words.min() <= words.max() <= 0xFFFFFFFF:
        raise UsageError(f"fold_in: expected data from 0 to 2**32 - 1, got {words.min()} to {words.max()}.")
    return threefry.fold_in(key, words.astype(np.uint32))


def bits(key: Key, shape: Sequence[int] = (), dtype: DTypeLike = np.uint32) -> Shaped[np.ndarray, "..."]:
    """Random bits as unsigned integers of 8, 16, 32 or 64 bits."""
    dtype = np.dtype(dtype)
    if dtype.kind != "u":
        raise UsageError(f"bits: expected an unsigned integer dtype, got {dtype}.")
    return _bits(key, as_shape(shape, "bits"), 8 * dtype.itemsize, "bits")


def uniform(
    key: Key,
    shape: Sequence[int] = (),
    dtype: DTypeLike = np.float32,
    minval: Numbers = 0.0,
    maxval: Numbers = 1.0,
) -> Float[np.ndarray, "..."]:
    """Uniform numbers in [minval, maxval); the bounds broadcast to `shape`."""
    shape, dtype = as_shape(shape, "uniform"), _float_dtype(dtype, "uniform")
    floats = _unit(key, shape, dtype, "uniform")
    if isinstance(minval, float) and isinstance(maxval, float) and (minval, maxval) == (0.0, 1.0):
        return floats
    low, high = _floats(minval, dtype, "uniform"), _floats(maxval, dtype, "uniform")
    check_broadcast(low.shape, shape, "uniform")
    check_broadcast(high.shape, shape, "uniform")
    low, high = np.atleast_1d(low), np.atleast_1d(high)
    return np.maximum(low, xla_math.fma(np.atleast_1d(floats), high - low, low)).reshape(floats.shape)


def normal(key: Key, shape: Sequence[int] = (), dtype: DTypeLike = np.float32) -> Float[np.ndarray, "..."]:
    """Standard normal numbers, by the inverse error function of a uniform in (-1, 1)."""
    dtype = _float_dtype(dtype, "normal")
    low = np.nextafter(dtype.type(-1), dtype.type(0))
    u = np.asarray(_unit(key, as_shape(shape, "normal"), dtype, "normal") * dtype.type(2) + low)
    return np.asarray(dtype.type(math.sqrt(2)) * xla_math.erf_inv(u))


def gumbel(key: Key, shape: Sequence[int] = (), dtype: DTypeLike = np.float32) -> Float[np.ndarray, "..."]:
    """Standard Gumbel numbers, -log(-log(u)) (JAX's mode "low", its default)."""
    dtype = _float_dtype(dtype, "gumbel")
    u = np.asarray(_unit(key, as_shape(shape, "gumbel"), dtype, "gumbel") + np.finfo(dtype).tiny)
    inner = xla_math.log(u)
    outer = xla_math.log(np.negative(inner, out=inner))
    return np.negative(outer, out=outer)


def exponential(key: Key, shape: Sequence[int] = (), dtype: DTypeLike = np.float32) -> Float[np.ndarray, "..."]:
    """Exponential numbers of rate 1, -log1p(-u)."""
    u = _unit(key, as_shape(shape, "exponential"), _float_dtype(dtype, "exponential"), "exponential")
    return np.negative(xla_math.log1p(np.negative(u, out=u)), out=u)


def bernoulli(key: Key, p: Numbers = 0.5, shape: Sequence[int] | None = None) -> Bool[np.ndarray, "..."]:
    """True with probability `p`, drawn in the dtype of `p` (float32 for a Python number)."""
    p = _probabilities(p, "bernoulli")
    shape = p.shape if shape is None else as_shape(shape, "bernoulli")
    check_broadcast(p.shape, shape, "bernoulli")
    if p.size and not 0 <= p.min() <= p.max() <= 1:
        raise UsageError(f"bernoulli: expected probabilities from 0 to 1, got {p.min()} to {p.max()}.")
    return np.asarray(_unit(key, shape, p.dtype, "bernoulli") < p)


def categorical(
    key: Key, logits: Float[np.ndarray, "..."], axis: int = -1, shape: Sequence[int] | None = None
) -> Int64[np.ndarray, "..."]:
    """Indices along `axis` with probability softmax(logits), by the Gumbel-max trick."""
    axis, sizes, noise = categorical_shape(logits.shape, axis, shape)
    chosen = np.argmax(gumbel(key, noise, logits.dtype) + logits, axis=axis)
    return np.asarray(chosen, np.int64).reshape((*key.shape[:-1], *sizes))


def randint(
    key: Key, shape: Sequence[int], minval: Numbers, maxval: Numbers, dtype: DTypeLike = np.int32
) -> Integer[np.ndarray, "..."]:
    """Integers in [minval, maxval); the bounds broadcast to `shape` and are clipped to what `dtype` can hold.

    Where maxval <= minval the answer is minval. Narrow dtypes are drawn in 32 bits.
    """
    shape, dtype = as_shape(shape, "randint"), np.dtype(dtype)
    if dtype.kind not in "iu":
        raise UsageError(f"randint: expected an integer dtype, got {dtype}.")
    low, high = np.atleast_1d(_integers(minval, "randint")), np.atleast_1d(_integers(maxval, "randint"))
    check_broadcast(np.shape(minval), shape, "randint")
    check_broadcast(np.shape(maxval), shape, "randint")
    drawn = dtype
    if dtype.itemsize < 4:
        info, drawn = np.iinfo(dtype), np.dtype(np.int32)
        low = low.astype(np.int32).clip(info.min, info.max)
        high = high.astype(np.int32).clip(info.min, info.max + 1)
    width, unsigned = 8 * drawn.itemsize, np.dtype(f"uint{8 * drawn.itemsize}")
    beyond = high > np.iinfo(drawn).max  # only then can the largest number of the dtype be drawn
    low, high = _clip(low, drawn), _clip(high, drawn)
    span = np.where(high > low, high.astype(unsigned) - low.astype(unsigned), unsigned.type(1))
    span = span + (beyond & (high > low)).astype(unsigned)  # 0 stands for all 2**width numbers
    words = _bits(split(key), shape, width, "randint")
    upper, lower = np.atleast_1d(*np.moveaxis(words, key.ndim - 1, 0))
    multiplier = _remainder(np.full_like(span, 2 ** (width // 2)), span)
    multiplier = _remainder(multiplier * multiplier, span)  # 2**width modulo the span
    offset = _remainder(_remainder(upper, span) * multiplier + _remainder(lower, span), span)
    return (low + offset.astype(drawn)).astype(dtype).reshape((*key.shape[:-1], *shape))


def permutation(
    key: Key, x: int | Shaped[np.ndarray, "..."], axis: int = 0, independent: bool = False
) -> Shaped[np.ndarray, "..."]:
    """`x` (or 0 .. x-1) shuffled along `axis`: whole slices, or with `independent` each line by itself."""
    _, batch = _keys(key, "permutation")
    if isinstance(x, int | np.integer):
        return _shuffle(key, np.arange(x), 0)
    if not isinstance(x, np.ndarray) or x.ndim == 0:
        raise UsageError(f"permutation: expected an integer or an array with axes, got {x!r}.")
    axis = as_axis(axis, x.ndim, "permutation")
    if independent or x.ndim == 1:
        return _shuffle(key, x, axis)
    return _take(x, _shuffle(key, np.arange(x.shape[axis]), 0), axis, len(batch))


def choice(
    key: Key,
    a: int | Shaped[np.ndarray, "..."],
    shape: Sequence[int] = (),
    replace: bool = True,
    p: Sequence[float] | np.ndarray | None = None,
    axis: int = 0,
) -> Shaped[np.ndarray, "..."]:
    """Items of `a` along `axis` (or of 0 .. a-1), with probabilities `p` or all alike."""
    _, batch = _keys(key, "choice")
    shape = as_shape(shape, "choice")
    if isinstance(a, np.ndarray) and a.ndim > 0:
        axis = as_axis(axis, a.ndim, "choice")
        population = a.shape[axis]
    else:
        population = int(_integers(a, "choice"))
    draws = math.prod(shape)
    if draws > 0:
        check_choice(draws, population, replace)
    if draws == 0:
        indices = np.zeros((*batch, *shape), np.int64)
    elif p is None:
        indices = randint(key, shape, 0, population) if replace else permutation(key, population)[..., :draws]
    else:
        indices = _weighted(key, _weights(p, population), shape, draws, replace)
    indices = indices.reshape((*batch, *shape)).astype(np.int64)
    return _take(a, indices, axis, len(batch)) if isinstance(a, np.ndarray) and a.ndim > 0 else indices


def _weighted(key: Key, p: Float[np.ndarray, " n"], shape: Shape, draws: int, replace: bool) -> np.ndarray:
    """Indices of items with probabilities `p`: by inverting the cumulative sum, or by the Gumbel top-k trick."""
    if replace:
        cumulative = xla_math.prefix_sum(p)
        return np.searchsorted(cumulative, cumulative[-1] * (1 - _unit(key, shape, p.dtype, "choice")))
    scores = gumbel(key, p.shape, p.dtype) + xla_math.log(p)
    return np.argsort(-scores, axis=-1, kind="stable")[..., :draws]


def _shuffle(key: Key, x: np.ndarray, axis: int) -> np.ndarray:
    """`x` sorted along `axis` by random words, as often as ties demand; one result per key."""
    _, batch = _keys(key, "permutation")
    result = np.broadcast_to(x, (*batch, *x.shape)).copy()
    for _ in range(shuffle_rounds(x.size)):
        key, subkey = np.moveaxis(split(key), -2, 0)
        order = np.argsort(_bits(subkey, x.shape, 32, "permutation"), axis=len(batch) + axis, kind="stable")
        result = np.take_along_axis(result, order, axis=len(batch) + axis)
    return result


def _take(x: np.ndarray, indices: np.ndarray, axis: int, batch: int) -> np.ndarray:
    """`x[indices]` along `axis`; the first `batch` axes of `indices` come first in the result."""
    taken = np.take(x, indices, axis=axis)
    return np.moveaxis(taken, range(axis, axis + batch), range(batch))


def _keys(key: Any, function: str) -> tuple[UInt32[np.ndarray, "keys 2"], Shape]:
    """The keys in one row, and the shape of their batch."""
    if not isinstance(key, np.ndarray) or key.dtype != np.uint32:
        kind = f"{key.dtype} {type(key).__name__}" if hasattr(key, "dtype") else repr(key)
        raise UsageError(f"{function}: expected a uint32 NumPy key, got {kind}. Make one with key(seed).")
    check_key_shape(key.shape, function)
    return key.reshape(-1, 2), key.shape[:-1]


def _bits(key: Key, shape: Shape, width: int, function: str) -> np.ndarray:
    keys, batch = _keys(key, function)
    return threefry.bits(keys, math.prod(shape), width).reshape(batch + shape)


def _unit(key: Key, shape: Shape, dtype: np.dtype, function: str) -> np.ndarray:
    keys, batch = _keys(key, function)
    return threefry.unit(keys, math.prod(shape), dtype).reshape(batch + shape)


def _remainder(x: np.ndarray, span: np.ndarray) -> np.ndarray:
    """x modulo span, where a span of 0 stands for every number of the dtype."""
    return np.where(span == 0, x, x % np.maximum(span, 1))


def _clip(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`x` in an integer dtype, held to the nearest number it has."""
    ours, theirs = np.iinfo(dtype), np.iinfo(x.dtype)
    return x.clip(max(ours.min, theirs.min), min(ours.max, theirs.max)).astype(dtype)


def _float_dtype(dtype: DTypeLike, function: str) -> np.dtype:
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise UsageError(f"{function}: expected dtype float32 or float64, got {dtype}.")
    return dtype


def _floats(x: Any, dtype: np.dtype, function: str) -> np.ndarray:
    array = np.asarray(x)
    if array.dtype.kind not in "iuf":
        raise UsageError(f"{function}: expected real numbers, got {x!r}.")
    return array.astype(dtype)


def _integers(x: Any, function: str) -> np.ndarray:
    array = np.asarray(x)
    if array.dtype.kind not in "iu":
        raise UsageError(f"{function}: expected integers of at most 64 bits, got {x!r}.")
    return array


def _probabilities(p: Any, function: str) -> np.ndarray:
    """`p` as float32 or float64; Python numbers are float32."""
    array = np.asarray(p)
    if array.dtype.kind != "f":
        raise UsageError(f"{function}: expected probabilities as floating-point numbers, got {p!r}.")
    return array.astype(_float_dtype(array.dtype if hasattr(p, "dtype") else np.float32, function))


def _weights(p: Any, population: int) -> Float[np.ndarray, " n"]:
    weights = _probabilities(p, "choice")
    if weights.shape != (population,):
        raise UsageError(f"choice: expected one probability per item, shape ({population},), got {weights.shape}.")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise UsageError(f"choice: expected probabilities of at least 0, some above, got {weights}.")
    return weights
