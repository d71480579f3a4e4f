"""What differs between episodes and between steps, in JAX. Twin: randomisation_numpy.py. The rules are in params.py."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int32, UInt32

from ...random import streams_jax as streams
from .model import RobotModel, Variation
from .params import Randomisation, Settings

NUMBERS = 12
"""Uniform numbers of an episode beside those of its joints: key (2), command (3), and one for each of the others."""


def key_of(uniform: Float32[Array, "*batch 2"]) -> UInt32[Array, "*batch 2"]:
    """The key of an episode: two words, floor(2^23 u)."""
    return (uniform * jnp.float32(2**23)).astype(jnp.uint32)


def between(
    low: float | Float[Array, "..."], high: float | Float[Array, "..."], uniform: Float[Array, "..."]
) -> Float[Array, "..."]:
    """low + (high - low) u."""
    return low + (high - low) * uniform


def counted(span: tuple[int, int], uniform: Float32[Array, "*batch"]) -> Int32[Array, "*batch"]:
    """Whole numbers from one bound to the other, both included: low + floor((high - low + 1) u)."""
    low, high = span
    return jnp.minimum(low + jnp.floor((high - low + 1) * uniform), high).astype(jnp.int32)


def command_of(settings: Settings, uniform: Float[Array, "*batch 3"]) -> Float[Array, "*batch 3"]:
    """Forward speed, sideways speed and turning rate, each within its range."""
    low, high = (jnp.broadcast_to(bound, uniform.shape) for bound in settings)
    return between(low, high, uniform)


def variation_of(model: RobotModel, ranges: Randomisation, uniform: Float[Array, "*batch 4"]) -> Variation:
    """Friction, mass, damping and ground of an episode."""
    friction = (model.friction, model.friction) if ranges.friction is None else ranges.friction
    spans = friction, ranges.mass, ranges.damping, ranges.terrain
    return Variation(*(between(*span, uniform[..., i]) for i, span in enumerate(spans)))


def impulse(
    model: RobotModel, ranges: Randomisation, key: UInt32[Array, "*batch 2"], t: Int32[Array, "*batch"], dtype: str
) -> Float[Array, "*batch 2"]:
    """The push of step t in N s, along x and y: of a size within its range, in any horizontal direction."""
    drawn = _drawn(streams.uniform, key, t, 0, 2, dtype)
    size, direction = between(*ranges.push, drawn[..., 0]), drawn[..., 1]
    if model.base == "planar":
        return jnp.stack([jnp.where(direction < 0.5, size, -size), jnp.zeros_like(size)], -1)
    angle = 2 * np.pi * direction
    return jnp.stack([size * jnp.cos(angle), size * jnp.sin(angle)], -1)


def noise(
    ranges: Randomisation, key: UInt32[Array, "*batch 2"], t: Int32[Array, "*batch"], numbers: int, dtype: str
) -> Float[Array, "*batch numbers"]:
    """What is added to the observation after step t: normal numbers times the deviation."""
    return ranges.noise * _drawn(streams.normal, key, t, 1, numbers, dtype)


def _drawn(
    draw: Callable[..., Array],
    key: UInt32[Array, "*batch 2"],
    t: Int32[Array, "*batch"],
    which: int,
    n: int,
    dtype: str,
) -> Float[Array, "*batch n"]:
    """Numbers from fold_in(key, 2 t + which)."""

    def one(words: UInt32[Array, "2"], t: Int32[Array, ""]) -> Float[Array, " n"]:
        return draw(jax.random.fold_in(jax.random.wrap_key_data(words), 2 * t + which), (n,), dtype)

    return jnp.vectorize(one, signature="(w),()->(n)")(key, t)
