"""What differs between episodes and between steps, in NumPy. Twin: randomisation_jax.py. The rules are in params.py."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float, Float32, Int32, UInt32

from ...random import random_numpy as random
from .model import RobotModel, Variation
from .params import Randomisation, Settings

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes

NUMBERS = 12
"""Uniform numbers of an episode beside those of its joints: key (2), command (3), and one for each of the others."""


def key_of(uniform: Float32[Array, "*batch 2"]) -> UInt32[Array, "*batch 2"]:
    """The key of an episode: two words, floor(2^23 u)."""
    return (uniform * np.float32(2**23)).astype(np.uint32)


def between(
    low: float | Float[Array, "..."], high: float | Float[Array, "..."], uniform: Float[Array, "..."]
) -> Float[Array, "..."]:
    """low + (high - low) u."""
    return low + (high - low) * uniform


def counted(span: tuple[int, int], uniform: Float32[Array, "*batch"]) -> Int32[Array, "*batch"]:
    """Whole numbers from one bound to the other, both included: low + floor((high - low + 1) u)."""
    low, high = span
    return np.minimum(low + np.floor((high - low + 1) * uniform), high).astype(np.int32)


def command_of(settings: Settings, uniform: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3"]:
    """Forward speed, sideways speed and turning rate, each within its range."""
    return between(settings.low, settings.high, uniform)


def variation_of(model: RobotModel, ranges: Randomisation, uniform: Float[Array, "*batch 4"]) -> Variation:
    """Friction, mass, damping and ground of an episode."""
    friction = (model.friction, model.friction) if ranges.friction is None else ranges.friction
    spans = friction, ranges.mass, ranges.damping, ranges.terrain
    return Variation(*(between(*span, uniform[..., i]) for i, span in enumerate(spans)))


def impulse(
    model: RobotModel, ranges: Randomisation, key: UInt32[Array, "*batch 2"], t: Int32[Array, "*batch"], dtype: str
) -> Float[Array, "*batch 2"]:
    """The push of step t in N s, along x and y: of a size within its range, in any horizontal direction."""
    drawn = _drawn(random.uniform, key, t, 0, 2, dtype)
    size, direction = between(*ranges.push, drawn[..., 0]), drawn[..., 1]
    if model.base == "planar":
        return np.stack([np.where(direction < 0.5, size, -size), np.zeros_like(size)], -1)
    angle = 2 * np.pi * direction
    return np.stack([size * np.cos(angle), size * np.sin(angle)], -1)


def noise(
    ranges: Randomisation, key: UInt32[Array, "*batch 2"], t: Int32[Array, "*batch"], numbers: int, dtype: str
) -> Float[Array, "*batch numbers"]:
    """What is added to the observation after step t: normal numbers times the deviation."""
    return ranges.noise * _drawn(random.normal, key, t, 1, numbers, dtype)


def _drawn(
    draw: Callable[..., np.ndarray],
    key: UInt32[Array, "*batch 2"],
    t: Int32[Array, "*batch"],
    which: int,
    n: int,
    dtype: str,
) -> Float[Array, "*batch n"]:
    """Numbers from fold_in(key, 2 t + which)."""
    return draw(random.fold_in(key, np.asarray(2 * t + which)), (n,), dtype)
