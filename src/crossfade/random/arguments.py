"""Checks of arguments that both twins share."""

import math
import operator
from collections.abc import Sequence
from typing import Any

from ..errors import UsageError

Shape = tuple[int, ...]


def as_shape(shape: Any, function: str) -> Shape:
    """`shape` as a tuple of sizes."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise UsageError(f"{function}: expected a shape such as (3, 2) or (), got {shape!r}.") from None
    if any(size < 0 for size in sizes):
        raise UsageError(f"{function}: expected sizes of at least 0, got shape {sizes}.")
    return sizes


def check_key_shape(shape: Sequence[int], function: str) -> None:
    """Refuse anything whose last axis is not the two words of a key."""
    if len(shape) == 0 or shape[-1] != 2:
        raise UsageError(
            f"{function}: expected a key, of shape (..., 2), got shape {tuple(shape)}. Make one with key(seed)."
        )


def seed_words(seed: Any) -> tuple[int, int]:
    """High and low word of a 64-bit seed in two's complement."""
    try:
        seed = operator.index(seed)
    except TypeError:
        raise UsageError(f"key: expected an integer seed, got {seed!r}.") from None
    if not -(2**63) <= seed < 2**63:
        raise UsageError(f"key: expected a seed that fits in 64 signed bits, got {seed}.")
    return (seed >> 32) & 0xFFFFFFFF, seed & 0xFFFFFFFF


def check_broadcast(parameter: Sequence[int], shape: Shape, function: str) -> None:
    """Refuse a parameter that does not broadcast to exactly `shape`."""
    sizes = tuple(parameter)
    fits = len(sizes) <= len(shape) and all(a in (1, b) for a, b in zip(reversed(sizes), reversed(shape), strict=False))
    if not fits:
        raise UsageError(f"{function}: expected parameters that broadcast to shape {shape}, got one of shape {sizes}.")


def as_axis(axis: int, ndim: int, function: str) -> int:
    """`axis` counted from the front."""
    if not -ndim <= axis < ndim:
        raise UsageError(f"{function}: expected an axis from {-ndim} to {ndim - 1}, got {axis}.")
    return axis % ndim


def categorical_shape(logits: Sequence[int], axis: int, shape: Sequence[int] | None) -> tuple[int, Shape, Shape]:
    """The axis counted from the back, the shape of the answer, and the shape of the Gumbel noise."""
    front = as_axis(axis, len(logits), "categorical")
    batch = (*logits[:front], *logits[front + 1 :])
    sizes = batch if shape is None else as_shape(shape, "categorical")
    check_broadcast(batch, sizes, "categorical")
    prefix, own = sizes[: len(sizes) - len(batch)], sizes[len(sizes) - len(batch) :]
    return front - len(logits), sizes, (*prefix, *own[:front], logits[front], *own[front:])


def check_choice(draws: int, population: int, replace: bool) -> None:
    """Refuse to draw from nothing, or more than there is."""
    if population <= 0:
        raise UsageError("choice: expected at least one item to choose from, got none.")
    if not replace and draws > population:
        raise UsageError(
            f"choice: expected at most {population} draws without replacement, got {draws}. Pass replace=True?"
        )


def shuffle_rounds(size: int) -> int:
    """How many sorts by random 32-bit words make a shuffle of `size` elements free of ties, by JAX's own count."""
    return math.ceil(3 * math.log(max(1, size)) / math.log(2**32 - 1))
