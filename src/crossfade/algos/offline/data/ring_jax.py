"""A ring of rows, in JAX. Twin: ring_numpy.py."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer

from ..batch import Batch
from .ring import Ring


def start(rows: Batch, capacity: int) -> Ring:
    """An empty ring for rows like these."""
    zero = jnp.zeros((), jnp.int32)
    return Ring(jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), rows), zero, zero)


def push(ring: Ring, rows: Batch) -> Ring:
    """The ring with some rows more, written from its place on and around; of too many the last remain."""
    capacity, n = len(ring.rows.observations), len(rows.observations)
    kept = min(n, capacity)
    place = (ring.place + jnp.arange(n - kept, n, dtype=jnp.int32)) % capacity
    write = lambda old, new: old.at[place].set(new[n - kept :], unique_indices=True)
    place_after = (ring.place + n) % capacity
    return Ring(jax.tree.map(write, ring.rows, rows), place_after, jnp.minimum(ring.size + n, capacity))


def sample(ring: Ring, indices: Integer[Array, " n"]) -> Batch:
    """The rows of these numbers modulo the number of rows that are there."""
    place = indices % ring.size.astype(indices.dtype)
    return jax.tree.map(lambda x: x[place], ring.rows)
