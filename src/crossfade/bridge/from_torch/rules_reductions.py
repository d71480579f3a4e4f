"""Reductions and running sums, in JAX."""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from .rules_pointwise import absolute
from .table import rule
from .values import Axes, Number, as_float, axes, count


@rule("sum")
def total(x: Array, dim: Axes = None, keepdim: bool = False, *, dtype: object = None) -> Array:
    return jnp.sum(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("nansum")
def nansum(x: Array, dim: Axes = None, keepdim: bool = False, *, dtype: object = None) -> Array:
    return jnp.nansum(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("mean")
def mean(x: Array, dim: Axes = None, keepdim: bool = False, *, dtype: object = None) -> Array:
    return jnp.mean(as_float(x), axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("prod")
def prod(x: Array, dim: int | None = None, keepdim: bool = False, *, dtype: object = None) -> Array:
    return jnp.prod(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("amax")
def amax(x: Array, dim: Axes = (), keepdim: bool = False) -> Array:
    """The largest; equal ones share the gradient."""
    return jnp.max(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("amin")
def amin(x: Array, dim: Axes = (), keepdim: bool = False) -> Array:
    return jnp.min(x, axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("aminmax")
def aminmax(x: Array, *, dim: int | None = None, keepdim: bool = False) -> tuple[Array, Array]:
    return amin(x, dim, keepdim), amax(x, dim, keepdim)


@rule("max.default")
def largest(x: Array) -> Array:
    return jnp.max(x)


@rule("min.default")
def smallest(x: Array) -> Array:
    return jnp.min(x)


@rule("max.dim")
def max_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    """The largest along an axis and its first index, which alone has the gradient."""
    return at_index(x, argmax(x, dim, True), dim, keepdim)


@rule("min.dim")
def min_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return at_index(x, argmin(x, dim, True), dim, keepdim)


def at_index(x: Array, index: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
    """The elements at an index along an axis, and the index."""
    if x.ndim == 0:
        return x, index.reshape(())
    value = jnp.take_along_axis(x, index, axis=dim)
    return (value, index) if keepdim else (value.squeeze(dim), index.squeeze(dim))


@rule("argmax")
def argmax(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return _arg(jnp.argmax, x, dim, keepdim)


@rule("argmin")
def argmin(x: Array, dim: int | None = None, keepdim: bool = False) -> Array:
    return _arg(jnp.argmin, x, dim, keepdim)


def _arg(find: Callable[..., Array], x: Array, dim: int | None, keepdim: bool) -> Array:
    if dim is None or x.ndim == 0:
        index = find(x.reshape(-1))
        return index.reshape((1,) * x.ndim) if keepdim else index
    return find(x, axis=dim, keepdims=keepdim)


@rule("any", "_is_any_true")
def any_(x: Array, dim: Axes = None, keepdim: bool = False) -> Array:
    return jnp.any(x != 0, axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("all", "_is_all_true")
def all_(x: Array, dim: Axes = None, keepdim: bool = False) -> Array:
    return jnp.all(x != 0, axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("count_nonzero")
def count_nonzero(x: Array, dim: Axes = None) -> Array:
    return jnp.sum(x != 0, axis=axes(dim, x.ndim))


@rule("var.correction")
def var(x: Array, dim: Axes = None, *, correction: Number | None = None, keepdim: bool = False) -> Array:
    """The variance with n - correction in the denominator, 1 by default."""
    over = axes(dim, x.ndim)
    n = count(x.shape, over) - (1 if correction is None else correction)
    squares = jnp.square(x - jnp.mean(x, axis=over, keepdims=True))
    return jnp.sum(squares, axis=over, keepdims=keepdim) / jnp.asarray(max(n, 0), x.dtype)


@rule("std.correction")
def std(x: Array, dim: Axes = None, *, correction: Number | None = None, keepdim: bool = False) -> Array:
    """The root of the variance, whose derivative at 0 is 0."""
    return safe_sqrt(var(x, dim, correction=correction, keepdim=keepdim))


@rule("var_mean.correction")
def var_mean(x: Array, dim: Axes = None, *, correction: Number | None = None, keepdim: bool = False) -> tuple:
    return var(x, dim, correction=correction, keepdim=keepdim), mean(x, dim, keepdim)


@rule("std_mean.correction")
def std_mean(x: Array, dim: Axes = None, *, correction: Number | None = None, keepdim: bool = False) -> tuple:
    return std(x, dim, correction=correction, keepdim=keepdim), mean(x, dim, keepdim)


def safe_sqrt(x: Array) -> Array:
    """The square root, whose derivative at 0 is 0."""
    return jnp.where(x == 0, 0.0, jnp.sqrt(jnp.where(x == 0, 1.0, x)))


@rule("logsumexp")
def logsumexp(x: Array, dim: Axes, keepdim: bool = False) -> Array:
    return jax.nn.logsumexp(as_float(x), axis=axes(dim, x.ndim), keepdims=keepdim)


@rule("linalg_vector_norm")
def vector_norm(x: Array, ord: Number = 2, dim: Axes = None, keepdim: bool = False, *, dtype: object = None) -> Array:
    """(sum |x|^ord)^(1/ord), whose derivative at the zero vector is 0."""
    over, size = axes(dim, x.ndim), absolute(as_float(x))
    if ord == 2:
        return safe_sqrt(jnp.sum(jnp.square(x), axis=over, keepdims=keepdim))
    if ord == 1:
        return jnp.sum(size, axis=over, keepdims=keepdim)
    if ord == 0:
        return jnp.sum(lax.stop_gradient(size != 0), axis=over, keepdims=keepdim)
    if math.isinf(ord):
        return (jnp.max if ord > 0 else jnp.min)(size, axis=over, keepdims=keepdim)
    sums = jnp.sum(jnp.where(size == 0, 0.0, jnp.where(size == 0, 1.0, size) ** ord), axis=over, keepdims=keepdim)
    return jnp.where(sums == 0, 0.0, jnp.where(sums == 0, 1.0, sums) ** (1 / ord))


@rule("norm")
def norm(x: Array, p: Number | None = 2, dim: Axes = None, keepdim: bool = False, *, dtype: object = None) -> Array:
    return vector_norm(x, 2 if p is None else p, dim, keepdim)


@rule("cumsum")
def cumsum(x: Array, dim: int, *, dtype: object = None) -> Array:
    return jnp.cumsum(x, axis=dim) if x.ndim else x


@rule("cumprod")
def cumprod(x: Array, dim: int, *, dtype: object = None) -> Array:
    return jnp.cumprod(x, axis=dim) if x.ndim else x


@rule("logcumsumexp")
def logcumsumexp(x: Array, dim: int) -> Array:
    return lax.cumlogsumexp(x, axis=dim % x.ndim) if x.ndim else x


@rule("cummax")
def cummax(x: Array, dim: int) -> tuple[Array, Array]:
    return _running(x, dim, lax.cummax)


@rule("cummin")
def cummin(x: Array, dim: int) -> tuple[Array, Array]:
    return _running(x, dim, lax.cummin)


def _running(x: Array, dim: int, running: Callable[..., Array]) -> tuple[Array, Array]:
    """The running extreme, and the last index at which it was reached, which alone has the gradient."""
    dim = dim % x.ndim
    extreme = running(lax.stop_gradient(x), axis=dim)
    positions = lax.broadcasted_iota(jnp.int32, x.shape, dim)
    index = lax.cummax(jnp.where(lax.stop_gradient(x) == extreme, positions, 0), axis=dim)
    return jnp.take_along_axis(x, index, axis=dim), index
