"""The scripted policy in NumPy: straight to the next cell of a shortest way. Twin: navigator_jax.py."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32, Int32

from .params import MazeParams
from .paths import shortest_paths

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes


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
    column, row = np.floor(position[..., 0]).astype(np.int32), np.floor(position[..., 1]).astype(np.int32)
    towards = shortest_paths(params.layout).following[goal, row * columns + column]
    half = np.float32(0.5)
    dx = (towards % columns).astype(np.float32) + half - position[..., 0]
    dy = (towards // columns).astype(np.float32) + half - position[..., 1]
    length = np.maximum(np.sqrt(dx * dx + dy * dy), np.float32(params.speed))
    return np.clip(np.stack([dx / length, dy / length], -1) + noise, np.float32(-1), np.float32(1))
