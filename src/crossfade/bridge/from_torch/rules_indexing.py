"""Reading and writing at indices, in JAX."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from ...errors import NoCounterpart
from .table import rule
from .values import Number, Value, ranked

Indices = Sequence[Array | None]


def _indexer(indices: Indices) -> tuple[Any, ...]:
    """torch's indices as NumPy's: arrays of one rank, and a slice for each None."""
    given = iter(ranked(*(i for i in indices if i is not None)))
    return tuple(slice(None) if i is None else next(given) for i in indices)


def _mask(x: Array, indices: Indices) -> Array | None:
    """The one boolean index, broadcast to x, if it covers the first axes alone."""
    masks = [i for i in indices if i is not None]
    if len(masks) != 1 or masks[0].dtype != bool or indices[0] is None:
        return None
    return jnp.broadcast_to(masks[0].reshape(masks[0].shape + (1,) * (x.ndim - masks[0].ndim)), x.shape)


@rule("index", "_unsafe_index")
def index(x: Array, indices: Indices) -> Array:
    return x[_indexer(indices)]


@rule("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(x: Array, indices: Indices, values: Array, accumulate: bool = False, unsafe: bool = False) -> Array:
    """x with values written to, or added at, the indices. A mask takes one value, or one for each of its axes' rest."""
    mask = _mask(x, indices)
    if mask is None:
        at = x.at[_indexer(indices)]
        values = values.astype(x.dtype)
        return at.add(values) if accumulate else at.set(values)
    first = next(i for i in indices if i is not None).ndim
    if values.ndim > x.ndim - first and values.shape[0] != 1:
        raise NoCounterpart(
            "x[mask] = values: expected one value for all places of the mask, got one for each, whose number depends "
            "on the mask. Use torch.where(mask, values, x)."
        )
    _, values = ranked(x, values.reshape(values.shape[-(x.ndim - first) :] if x.ndim > first else ()).astype(x.dtype))
    return jnp.where(mask, x + values if accumulate else values, x)


@rule("gather")
def gather(x: Array, dim: int, index: Array, *, sparse_grad: bool = False) -> Array:
    if x.ndim == 0:
        return x if index.ndim == 0 else jnp.broadcast_to(x, index.shape)
    return x[_along(x, dim, index)]


def _along(x: Array, dim: int, index: Array) -> tuple[Array, ...]:
    """Indices of every axis: the given ones along `dim`, their own positions along the others."""
    places = [lax.broadcasted_iota(index.dtype, index.shape, axis) for axis in range(index.ndim)]
    places[dim % x.ndim] = index
    return tuple(places)


@rule("scatter")
def scatter(x: Array, dim: int, index: Array, source: Value, *, reduce: str | None = None) -> Array:
    """x with the source written at the indices along an axis."""
    values = jnp.asarray(source, x.dtype)
    values = values if values.ndim == 0 else values[tuple(slice(n) for n in index.shape)]
    if x.ndim == 0:
        return values.reshape(())
    at = x.at[_along(x, dim, index)]
    return {"add": at.add, "multiply": at.multiply}.get(reduce or "", at.set)(values)


@rule("scatter_add")
def scatter_add(x: Array, dim: int, index: Array, source: Array) -> Array:
    return scatter(x, dim, index, source, reduce="add")


@rule("scatter_reduce")
def scatter_reduce(x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True) -> Array:
    """x with the sum, product, mean, largest or smallest of the sources that fall on each place."""
    places, source = _along(x, dim, index), source[tuple(slice(n) for n in index.shape)]
    neutral = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -jnp.inf, "amin": jnp.inf}[reduce]
    hit = jnp.zeros(x.shape, int).at[places].add(1)
    start = x if include_self else jnp.where(hit > 0, jnp.asarray(neutral, x.dtype), x)
    at = start.at[places]
    result = {"sum": at.add, "mean": at.add, "prod": at.multiply, "amax": at.max, "amin": at.min}[reduce](source)
    return result / jnp.maximum(hit + int(include_self), 1) if reduce == "mean" else result


@rule("index_select")
def index_select(x: Array, dim: int, index: Array) -> Array:
    return x[_on(x, dim, index.reshape(-1))] if x.ndim else x


def _on(x: Array, dim: int, index: Any) -> tuple[Any, ...]:
    return (slice(None),) * (dim % x.ndim) + (index,)


@rule("index_add")
def index_add(x: Array, dim: int, index: Array, source: Array, *, alpha: Number = 1) -> Array:
    return x.at[_on(x, dim, index)].add(alpha * source)


@rule("index_copy")
def index_copy(x: Array, dim: int, index: Array, source: Array) -> Array:
    return x.at[_on(x, dim, index)].set(source)


@rule("index_fill")
def index_fill(x: Array, dim: int, index: Array, value: Value) -> Array:
    return x.at[_on(x, dim, index)].set(jnp.asarray(value, x.dtype))


@rule("take")
def take(x: Array, index: Array) -> Array:
    return x.reshape(-1)[index]


@rule("embedding")
def embedding(
    weight: Array, index: Array, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Array:
    """Rows of a table; that of the padding has no gradient."""
    if scale_grad_by_freq:
        raise NoCounterpart("embedding: expected scale_grad_by_freq=False, got True, which JAX does not have.")
    rows = weight[index]
    if padding_idx < 0:
        return rows
    return jnp.where((index == padding_idx)[..., None], lax.stop_gradient(rows), rows)
