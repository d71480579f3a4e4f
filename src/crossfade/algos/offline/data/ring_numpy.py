"""A ring of rows, in NumPy. Twin: ring_jax.py."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Integer

from ..batch import Batch
from .ring import Ring


def start(rows: Batch, capacity: int) -> Ring:
    """An empty ring for rows like these."""
    zero = np.zeros((), np.int32)
    return Ring(_map(lambda x: np.zeros((capacity, *x.shape[1:]), x.dtype), rows), zero, zero)


def push(ring: Ring, rows: Batch) -> Ring:
    """The ring with some rows more, written from its place on and around; of too many the last remain."""
    capacity, n = len(ring.rows.observations), len(rows.observations)
    kept = min(n, capacity)
    place = (ring.place + np.arange(n - kept, n, dtype=np.int32)) % capacity

    def written(old: Any, new: Any) -> Any:
        out = old.copy()
        out[place] = new[n - kept :]
        return out

    place_after = np.asarray((ring.place + n) % capacity, np.int32)
    return Ring(_map(written, ring.rows, rows), place_after, np.asarray(np.minimum(ring.size + n, capacity), np.int32))


def sample(ring: Ring, indices: Integer[np.ndarray, " n"]) -> Batch:
    """The rows of these numbers modulo the number of rows that are there."""
    place = indices % ring.size.astype(indices.dtype)
    return _map(lambda x: x[place], ring.rows)


def _map(function: Callable[..., Any], *rows: Batch) -> Batch:
    return Batch(*(None if columns[0] is None else function(*columns) for columns in zip(*rows, strict=True)))
