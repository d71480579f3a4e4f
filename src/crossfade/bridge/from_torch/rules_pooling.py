"""Pooling and resizing, in JAX."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ...errors import NoCounterpart
from .table import rule
from .values import Number

Sizes = Sequence[int]


def _every(sizes: Sizes, space: int) -> tuple[int, ...]:
    return tuple(sizes) * (space if len(sizes) == 1 else 1)


@rule("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool(
    x: Array, kernel: Sizes, stride: Sizes = (), padding: Sizes = (0,), dilation: Sizes = (1,), ceil_mode: bool = False
) -> tuple[Array, Array]:
    """The largest of each window and its place in the flattened space; the first of equal ones has the gradient."""
    space = len(kernel)
    stride, padding, dilation = _every(stride or kernel, space), _every(padding, space), _every(dilation, space)
    sizes, lead = x.shape[-space:], x.shape[:-space]
    ends = [_end(*one, ceil_mode) for one in zip(sizes, kernel, stride, padding, dilation, strict=True)]
    pads = [(0, 0, 0)] * len(lead) + [(p, e, 0) for p, e in zip(padding, ends, strict=True)]
    least = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    padded = lax.pad(x, jnp.asarray(least, x.dtype), pads)
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    limits = [n - r for n, r in zip(padded.shape[-space:], reach, strict=True)]
    value = place = None
    for shift in np.ndindex(*kernel):
        start = [d * i for d, i in zip(dilation, shift, strict=True)]
        stops = [s + limit for s, limit in zip(start, limits, strict=True)]
        here = lax.slice(padded, (0,) * len(lead) + tuple(start), lead + tuple(stops), (1,) * len(lead) + stride)
        where = jnp.asarray(_places(here.shape[-space:], start, stride, padding, sizes))
        where = jnp.broadcast_to(where.reshape((1,) * len(lead) + where.shape), here.shape)
        if value is None or place is None:
            value, place = here, where
        else:
            better = (here > value) | jnp.isnan(here)
            value, place = jnp.where(better, here, value), jnp.where(better, where, place)
    assert value is not None and place is not None
    return value, place


def _places(windows: Sizes, start: Sizes, stride: Sizes, padding: Sizes, sizes: Sizes) -> np.ndarray:
    """For each window the place in the flattened space of the element at `start`."""
    place = np.zeros((1,) * len(sizes), int)
    for axis, n in enumerate(windows):
        along = np.arange(n) * stride[axis] + start[axis] - padding[axis]
        shape = [-1 if other == axis else 1 for other in range(len(sizes))]
        place = place + along.reshape(shape) * math.prod(sizes[axis + 1 :])
    return place


def _end(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Padding at the end of an axis: with `ceil_mode` as much as lets a last window begin inside."""
    if not ceil_mode:
        return padding
    reach = dilation * (kernel - 1) + 1
    windows = -(-(size + 2 * padding - reach) // stride) + 1
    windows -= (windows - 1) * stride >= size + padding
    return max((windows - 1) * stride + reach - size - padding, padding)


@rule("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(
    x: Array,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The mean of each window; whether padding counts is `count_include_pad`."""
    if ceil_mode:
        raise NoCounterpart("avg_pool: expected ceil_mode=False, got True. Pad the input yourself.")
    space = len(kernel)
    stride, padding = _every(stride or kernel, space), _every(padding, space)
    pads = [(0, 0)] * (x.ndim - space) + [(p, p) for p in padding]
    lead = (1,) * (x.ndim - space)
    sums = lambda a: lax.reduce_window(a, np.zeros((), a.dtype), lax.add, lead + tuple(kernel), lead + stride, pads)
    if divisor_override is not None or count_include_pad or not any(padding):
        return sums(x) / (divisor_override or math.prod(kernel))
    return sums(x) / sums(jnp.ones_like(x))


@rule("_adaptive_avg_pool2d", "adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(x: Array, sizes: Sizes) -> Array:
    """Means over windows that divide each axis into the given number of parts."""
    for axis, (start, end) in zip(range(x.ndim - len(sizes), x.ndim), _parts(x, sizes), strict=True):
        inside = np.arange(x.shape[axis])
        weights = (inside >= start[:, None]) & (inside < end[:, None])
        matrix = jnp.asarray(weights / weights.sum(1, keepdims=True), x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, matrix, axes=([axis], [1])), -1, axis)
    return x


@rule("adaptive_max_pool2d", "adaptive_max_pool1d", "adaptive_max_pool3d")
def adaptive_max_pool(x: Array, sizes: Sizes) -> tuple[Array, Array]:
    """The largest over such windows, and its place; for axes that divide evenly."""
    space = x.shape[x.ndim - len(sizes) :]
    if any(n % parts for n, parts in zip(space, sizes, strict=True)):
        raise NoCounterpart(f"adaptive_max_pool: expected sizes that divide {space}, got {tuple(sizes)}. Use max_pool.")
    return max_pool(x, [n // parts for n, parts in zip(space, sizes, strict=True)])


def _parts(x: Array, sizes: Sizes) -> list[tuple[np.ndarray, np.ndarray]]:
    """Where the parts of each axis begin and end."""
    found = []
    for n, parts in zip(x.shape[x.ndim - len(sizes) :], sizes, strict=True):
        i = np.arange(parts)
        found.append((i * n // parts, -(-(i + 1) * n // parts)))
    return found


@rule("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def upsample_nearest(x: Array, sizes: Sizes, *scales: Number | None) -> Array:
    for axis, n in zip(range(x.ndim - len(sizes), x.ndim), sizes, strict=True):
        x = jnp.take(x, np.arange(n) * x.shape[axis] // n, axis=axis)
    return x


@rule("upsample_linear1d", "upsample_bilinear2d")
def upsample_linear(x: Array, sizes: Sizes, align_corners: bool, *scales: Number | None) -> Array:
    """Between the two nearest elements of each axis, by their distance."""
    for axis, n, scale in zip(range(x.ndim - len(sizes), x.ndim), sizes, scales or (None,) * len(sizes), strict=True):
        size = x.shape[axis]
        if align_corners:
            at = np.arange(n) * ((size - 1) / (n - 1) if n > 1 else 0.0)
        else:
            at = np.maximum((np.arange(n) + 0.5) * (1 / scale if scale else size / n) - 0.5, 0)
        low = np.minimum(at.astype(int), size - 1)
        high, share = np.minimum(low + 1, size - 1), at - low
        matrix = np.zeros((n, size))
        np.add.at(matrix, (np.arange(n), low), 1 - share)
        np.add.at(matrix, (np.arange(n), high), share)
        x = jnp.moveaxis(jnp.tensordot(x, jnp.asarray(matrix, x.dtype), axes=([axis], [1])), -1, axis)
    return x


ZEROS, BORDER = 0, 1
"""torch's numbers for what lies outside of an image."""


@rule("grid_sampler_2d")
def grid_sample(x: Array, grid: Array, mode: int, padding: int, align_corners: bool) -> Array:
    """The image at points (x, y) between -1 and 1: of the four nearest elements by distance, or the nearest alone."""
    if mode not in (0, 1) or padding not in (ZEROS, BORDER):
        raise NoCounterpart("grid_sample: expected bilinear or nearest, and zeros or border outside; got another mode.")
    height, width = x.shape[2:]
    row, column = _pixels(grid[..., 1], height, align_corners), _pixels(grid[..., 0], width, align_corners)
    if padding == BORDER:
        row, column = _kept_inside(row, height), _kept_inside(column, width)
    if mode == 1:
        return _at(x, jnp.round(row), jnp.round(column))
    top, left = jnp.floor(row), jnp.floor(column)
    total = jnp.zeros((*x.shape[:2], *grid.shape[1:3]), x.dtype)
    for i, j in np.ndindex(2, 2):
        share = (1 - jnp.abs(row - (top + i))) * (1 - jnp.abs(column - (left + j)))
        total = total + _at(x, top + i, left + j) * share[:, None]
    return total


def _pixels(at: Array, size: int, align_corners: bool) -> Array:
    """Coordinates from -1 to 1 as indices: the ends are the outer elements' centres, or their outer edges."""
    return (at + 1) / 2 * (size - 1) if align_corners else ((at + 1) * size - 1) / 2


def _kept_inside(at: Array, size: int) -> Array:
    return jnp.where((at > 0) & (at < size - 1), at, lax.stop_gradient(jnp.clip(at, 0, size - 1)))


def _at(x: Array, row: Array, column: Array) -> Array:
    """Elements at whole coordinates of each image, 0 outside of it."""
    height, width = x.shape[2:]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    index = lambda at, size: jnp.clip(at, 0, size - 1).astype(int)
    found = jax.vmap(lambda image, i, j: image[:, i, j])(x, index(row, height), index(column, width))
    return jnp.where(inside[:, None], found, 0.0)
