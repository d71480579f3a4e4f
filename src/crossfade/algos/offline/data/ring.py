"""Rows that are kept until newer ones take their place. Framework-free; `ring_*` compute it."""

from typing import Any, NamedTuple

from ..batch import Batch


class Ring(NamedTuple):
    """The newest rows, at most as many as there is room for."""

    rows: Batch
    """With (capacity,) in front; what rows do not have is None."""
    place: Any
    """() int32: where the next row is written."""
    size: Any
    """() int32: how many rows are there."""
