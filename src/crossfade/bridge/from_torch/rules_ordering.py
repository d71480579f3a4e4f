"""Sorting, ranking and searching, in JAX. What is chosen by order has its gradient at the index it came from."""

import jax
import jax.numpy as jnp
from jax import Array, lax

from .rules_reductions import at_index
from .table import rule


@rule("sort.default")
def sort(x: Array, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    """Sorted values and their indices; equal ones stay in order."""
    if x.ndim == 0:
        return x, jnp.zeros((), int)
    index = jnp.argsort(lax.stop_gradient(x), axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, index, axis=dim), index


@rule("sort.stable")
def stable_sort(x: Array, *, stable: object = None, dim: int = -1, descending: bool = False) -> tuple[Array, Array]:
    return sort(x, dim, descending)


@rule("argsort")
def argsort(x: Array, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Array:
    return sort(x, dim=dim, descending=descending)[1]


@rule("topk")
def topk(x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Array, Array]:
    if x.ndim == 0:
        return x, jnp.zeros((), int)
    values, index = sort(x, dim=dim, descending=largest)
    return lax.slice_in_dim(values, 0, k, axis=dim), lax.slice_in_dim(index, 0, k, axis=dim)


@rule("kthvalue")
def kthvalue(x: Array, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Array, Array]:
    """The k-th smallest, counted from 1."""
    index = lax.slice_in_dim(argsort(x, dim), k - 1, k, axis=dim)
    return at_index(x, index, dim, keepdim)


@rule("median.default")
def median(x: Array) -> Array:
    """The lower of the two middle elements; all that equal it share the gradient."""
    flat = x.reshape(-1)
    middle = lax.stop_gradient(kthvalue(flat, (flat.size + 1) // 2)[0])
    equal = flat == middle
    return middle + jnp.sum(jnp.where(equal, flat - middle, 0.0)) / jnp.sum(equal)


@rule("median.dim")
def median_dim(x: Array, dim: int, keepdim: bool = False) -> tuple[Array, Array]:
    return kthvalue(x, (x.shape[dim] + 1) // 2, dim, keepdim)


@rule("searchsorted")
def searchsorted(
    edges: Array,
    x: Array,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Array | None = None,
) -> Array:
    """For each x the number of edges below it (or, with `right`, not above it)."""
    right = right or side == "right"
    edges = edges if sorter is None else jnp.take_along_axis(edges, sorter, axis=-1)
    values = jnp.asarray(x)
    if edges.ndim == 1:
        return jnp.searchsorted(edges, values, side="right" if right else "left")
    shape, columns = values.shape, edges.shape[-1]
    search = lambda e, v: jnp.searchsorted(e, v, side="right" if right else "left")
    return jax.vmap(search)(edges.reshape(-1, columns), values.reshape(-1, shape[-1])).reshape(shape)


@rule("bucketize")
def bucketize(x: Array, edges: Array, *, out_int32: bool = False, right: bool = False) -> Array:
    return searchsorted(edges, x, right=right)
