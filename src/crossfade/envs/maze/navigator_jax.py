"""The scripted policy in JAX: straight to the next cell of a shortest way. Twin: navigator_numpy.py."""

import jax.numpy as jnp
from jaxtyping import Array, Float32, Int32

from .params import MazeParams
from .paths import shortest_paths


def navigate(
    params: MazeParams,
    position: Float32[Array, "*batch 2"],
    goal: Int32[Array, "*batch"],
    noise: Float32[Array, "*batch 2"],
) -> Float32[Array, "*batch 2"]:
    """Actions: clip(d / max(||d||, speed) + noise, -1, 1).

    d leads from the position to the centre of the next cell on a shortest way to the cell `goal`; `noise` is Gaussian
    and has its scale. In both frameworks the same bits, because ||d||^2 is exact: d is at most 1.5 and 0.5 long.
    """
    columns = params.walls.shape[1]
    column, row = jnp.floor(position[..., 0]).astype(jnp.int32), jnp.floor(position[..., 1]).astype(jnp.int32)
    towards = jnp.asarray(shortest_paths(params.layout).following)[goal, row * columns + column]
    dx = (towards % columns).astype(jnp.float32) + 0.5 - position[..., 0]
    dy = (towards // columns).astype(jnp.float32) + 0.5 - position[..., 1]
    length = jnp.maximum(jnp.sqrt(dx * dx + dy * dy), jnp.float32(params.speed))
    # One division for each axis: by a length that is broadcast, XLA multiplies with its reciprocal, which rounds twice.
    return jnp.clip(jnp.stack([dx / length, dy / length], -1) + noise, -1, 1)
