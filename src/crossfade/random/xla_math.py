"""log, log1p, erf_inv, fused multiply-add and prefix sums as XLA's CPU backend computes them, in NumPy or torch.

In float32 XLA evaluates polynomials of its own, and LLVM fuses a product that is used once into the addition after
it. Both show: erf_inv near +-1 changes by 90 ulp if `1 - x*x` is fused, and one ulp in the inner log of a Gumbel draw
near 0 becomes 2000. So the float32 functions here hold float32 numbers in float64, where the product of two is exact,
and round wherever XLA rounds: a fused multiply-add is one product, one sum, one rounding. (The sum may round before
that; over all 2**23 arguments that `normal`, `gumbel` and `exponential` can have it never changed a result, and `fma`
guards against it.)
In float64 XLA calls libm's log; the rest is well-conditioned and evaluated here without fusing.

Each function takes a NumPy array or a torch tensor and returns the same kind. One source serves both, because the few
names used of the array module `xp` mean the same in NumPy and in torch.
"""

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from . import xla_coefficients as c

CHUNK = 1 << 14  # float64 temporaries of this length stay in cache
TILE = 16  # XLA sums rows of 16, then the row totals


def array_module(x: Any) -> Any:
    """The module, numpy or torch, that `x` belongs to."""
    if isinstance(x, np.ndarray):
        return np
    import torch

    return torch


def cast(x: Any, dtype: Any) -> Any:
    """`x` in another dtype."""
    return x.astype(dtype) if isinstance(x, np.ndarray) else x.to(dtype)


def _elementwise(function: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    """Call `function(xp, x)` on flat pieces that fit in cache; float32 tensors on the CPU lend NumPy their memory.

    NumPy has a fraction of torch's cost per operation, and there are 80 to 240. Float64 stays in torch, which can
    call libm's log in a loop; NumPy reaches it only through Python (its own float64 log is another on AVX-512).
    """

    @wraps(function)
    def apply(x: Any) -> Any:
        xp = array_module(x)
        if xp is not np:
            from .threefry_torch import on_host

            if x.dtype == xp.float32 and on_host(x):
                return xp.from_numpy(apply(x.numpy()))
            return function(xp, x)
        flat, out = x.reshape(-1), np.empty(x.size, x.dtype)
        for start in range(0, x.size, CHUNK):
            out[start : start + CHUNK] = function(np, flat[start : start + CHUNK])
        return out.reshape(x.shape)

    return apply


def _single(x: Any) -> Any:
    """Float64 numbers rounded to float32 and back."""
    return x.astype(np.float32).astype(np.float64) if isinstance(x, np.ndarray) else x.float().double()


def _double(x: Any) -> Any:
    return x


def _horner(x: Any, coefficients: Sequence[float], rounded: Callable[[Any], Any]) -> Any:
    total = coefficients[0]
    for coefficient in coefficients[1:]:
        total = rounded(total * x + coefficient)
    return total


def _log_single(xp: Any, x: Any) -> Any:
    """log of float32 numbers held in float64, by the polynomial of Cephes; 0 gives -inf."""
    bits = xp.where(x < c.TINY32, c.TINY32, x).view(xp.int64)
    exponent = (bits >> 52) - 1022
    mantissa = ((bits & ((1 << 52) - 1)) | (1022 << 52)).view(xp.float64)  # in [1/2, 1)
    low = mantissa < c.SQRT_HALF
    exponent = cast(exponent - cast(low, xp.int64), xp.float64)
    r = xp.where(low, 2 * mantissa, mantissa) - 1  # x = (1 + r) * 2**exponent
    square = _single(r * r)
    cube = _single(square * r)
    high, middle, last = (_horner(r, part, _single) for part in c.LOG_PARTS)
    total = _single(_single(high * cube + middle) * cube + last)
    total = _single(total * cube + _single(c.LN2_LOW * exponent))
    total = _single(_single(r - 0.5 * square) + total)
    return xp.where(x == 0, -math.inf, _single(total + c.LN2_HIGH * exponent))


def _log_double(xp: Any, x: Any) -> Any:
    """libm's log; 0 gives -inf."""
    if xp is not np:
        return xp.xlogy(1.0, x)  # torch.log is vectorised and another function by an ulp; xlogy calls libm
    positive = x > 0
    values = np.fromiter(map(math.log, np.where(positive, x, 1.0).tolist()), np.float64, x.size)
    return np.where(positive, values, -math.inf)


def _log1p(xp: Any, x: Any, rounded: Callable[[Any], Any], log: Callable[[Any, Any], Any], p, q, small: float) -> Any:
    square = rounded(x * x)
    ratio = rounded(_horner(x, p, rounded) / _horner(x, q, rounded))
    near = rounded(x + rounded(-0.5 * square + rounded(rounded(square * x) * ratio)))
    return xp.where(xp.abs(x) < small, near, log(xp, rounded(1 + x)))


def _log1p_single(xp: Any, x: Any) -> Any:
    return _log1p(xp, x, _single, _log_single, c.LOG1P_P32, c.LOG1P_Q32, c.LOG1P_SMALL32)


def _log1p_double(xp: Any, x: Any) -> Any:
    return _log1p(xp, x, _double, _log_double, c.LOG1P_P, c.LOG1P_Q, c.LOG1P_SMALL)


def _erf_inv_single(xp: Any, x: Any) -> Any:
    w = -_log1p_single(xp, _single(-x * x))
    centre = _horner(_single(w - 2.5), c.ERFINV32_CENTRE, _single)
    tail = _horner(_single(_single(xp.sqrt(w)) - 3.0), c.ERFINV32_TAIL, _single)
    return _single(xp.where(w < 5.0, centre, tail) * x)


def _erf_inv_double(xp: Any, x: Any) -> Any:
    w = -_log1p_double(xp, -x * x)
    root = xp.sqrt(w)
    centre = _horner(w - 3.125, c.ERFINV64_CENTRE, _double)
    tail = _horner(root - 3.25, c.ERFINV64_TAIL, _double)
    far = _horner(root - 5.0, c.ERFINV64_FAR, _double)
    return xp.where(w < 6.25, centre, xp.where(w < 16.0, tail, far)) * x


def _by_dtype(single: Callable[[Any, Any], Any], double: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    @_elementwise
    def function(xp: Any, x: Any) -> Any:
        if x.dtype == xp.float32:
            return cast(single(xp, cast(x, xp.float64)), xp.float32)
        return double(xp, x)

    return function


log = _by_dtype(_log_single, _log_double)  # of x >= 0
log1p = _by_dtype(_log1p_single, _log1p_double)  # of x > -1
erf_inv = _by_dtype(_erf_inv_single, _erf_inv_double)  # of -1 < x < 1


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """The rounded sum and its exact error (Knuth)."""
    total = a + b
    b_seen = total - a
    return total, (a - (total - b_seen)) + (b - b_seen)


def _sum_to_odd(xp: Any, a: Any, b: Any) -> Any:
    """a + b, an inexact sum taking the neighbour with odd last bit: then rounding to fewer bits is exact."""
    total, error = _two_sum(a, b)
    bits = total.view(xp.int64)
    step = xp.where((error > 0) == (total > 0), 1, -1)
    return xp.where((error != 0) & ((bits & 1) == 0), bits + step, bits).view(xp.float64)


def _split(x: Any) -> tuple[Any, Any]:
    """Two halves of a float64, 26 bits each (Dekker)."""
    high = x * 134217729.0
    high = high - (high - x)
    return high, x - high


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding, for arrays of one dtype, float32 or float64 (Boldo and Melquiond, 2008)."""
    xp = array_module(x)
    if x.dtype == xp.float32:
        x, y, z = (cast(a, xp.float64) for a in (x, y, z))
        return cast(_sum_to_odd(xp, x * y, z), xp.float32)
    (x_high, x_low), (y_high, y_low) = _split(x), _split(y)
    product = x * y
    residue = ((x_high * y_high - product) + x_high * y_low + x_low * y_high) + x_low * y_low
    low, low_error = _two_sum(z, residue)
    high, high_error = _two_sum(product, low)
    return high + _sum_to_odd(xp, high_error, low_error)


def prefix_sum(x: Any) -> Any:
    """Cumulative sum of a vector in XLA's order of addition: in rows of 16, then the row totals."""
    xp, size = array_module(x), len(x)
    rows = -(-size // TILE)
    padded = xp.zeros_like(x, shape=rows * TILE) if xp is np else x.new_zeros(rows * TILE)
    padded[:size] = x
    columns = list(padded.reshape(rows, TILE).T)
    for i in range(1, TILE):
        columns[i] = columns[i] + columns[i - 1]
    sums = xp.stack(columns, -1)
    if rows > 1:
        sums[1:] += prefix_sum(columns[-1])[:-1, None]
    return sums.reshape(-1)[:size]
