"""Sums, means and maxima of embeddings, bag by bag, in JAX."""

import jax
import jax.numpy as jnp
from jax import Array

from .table import rule

SUM, MEAN, MAX = 0, 1, 2


@rule("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    weight: Array,
    indices: Array,
    offsets: Array,
    scale_grad_by_freq: bool = False,
    mode: int = SUM,
    sparse: bool = False,
    per_sample_weights: Array | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Array:
    """Row b is of the rows of `weight` at indices[offsets[b] : offsets[b + 1]]; none give 0."""
    bags = offsets.shape[0] - include_last_offset
    bag = jnp.searchsorted(offsets[:bags], jnp.arange(indices.shape[0]), side="right") - 1
    counted = jnp.ones(indices.shape, bool) if padding_idx < 0 else indices != padding_idx
    rows = weight[indices]
    if per_sample_weights is not None:
        rows = rows * per_sample_weights[:, None]
    if mode == MAX:
        return _maxima(rows, bag, counted, bags)
    out = jax.ops.segment_sum(jnp.where(counted[:, None], rows, 0), bag, bags)
    sizes = jax.ops.segment_sum(counted.astype(rows.dtype), bag, bags)
    return out / jnp.maximum(sizes, 1)[:, None] if mode == MEAN else out


def _maxima(rows: Array, bag: Array, counted: Array, bags: int) -> Array:
    """The largest of each bag; of equal ones the first has the gradient, as in torch."""
    count = rows.shape[0]
    held = jax.lax.stop_gradient(jnp.where(counted[:, None], rows, -jnp.inf))
    largest = jax.ops.segment_max(held, bag, bags)
    place = jnp.where((held == largest[bag]) & counted[:, None], jnp.arange(count)[:, None], count)
    first = jax.ops.segment_min(place, bag, bags)
    found = jnp.take_along_axis(rows, jnp.clip(first, 0, count - 1), axis=0)
    return jnp.where(first < count, found, 0)
