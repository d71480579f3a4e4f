"""Mazes, balls anywhere in them, and the rules once more: grain by grain, in integers."""

from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from crossfade.envs.maze.params import GRAIN, MAPS, RADIUS, TASKS, MazeParams

REACH = int(RADIUS * GRAIN)
EVERY_TASK = [MazeParams(map=name, task=task + 1) for name in MAPS for task in range(len(TASKS[name]))]  # pyright: ignore
SPEEDS = (2**-6, 0.25, 0.3, 0.75)


def overlaps(params: MazeParams, grains: Int64[np.ndarray, "n 2"]) -> Any:
    """Whether the square around a position, in grains, has a point inside a wall: (n,) bool."""
    first, last = (grains - REACH) // GRAIN, -((-grains - REACH) // GRAIN) - 1
    corners = [
        (first[:, 1], first[:, 0]),
        (first[:, 1], last[:, 0]),
        (last[:, 1], first[:, 0]),
        (last[:, 1], last[:, 0]),
    ]
    return np.logical_or.reduce([params.walls[corner] for corner in corners])


def anywhere(params: MazeParams, n: int, seed: int = 0) -> Float32[np.ndarray, "n 2"]:
    """Balls that touch no wall, or touch one and do not overlap it."""
    rng, (rows, columns) = np.random.default_rng(seed), params.walls.shape
    grains = rng.integers(GRAIN, [(columns - 1) * GRAIN, (rows - 1) * GRAIN], (20 * n, 2))
    near = np.round(grains / REACH).astype(int) * REACH  # a third of them exactly at walls, edges and centres of cells
    grains = np.where(rng.random((20 * n, 1)) < 1 / 3, near, grains)
    grains = np.clip(grains, GRAIN + REACH, [(columns - 1) * GRAIN - REACH, (rows - 1) * GRAIN - REACH])
    found = grains[~overlaps(params, grains)][:n]
    assert len(found) == n
    return (found / GRAIN).astype(np.float32)


def actions(n: int, seed: int = 1) -> Float32[np.ndarray, "n 2"]:
    """Some of them beyond the bounds, and some along one axis."""
    rng = np.random.default_rng(seed)
    return (rng.uniform(-1.5, 1.5, (n, 2)) * rng.choice([0, 1, 1, 1], (n, 2))).astype(np.float32)


def pushed(
    params: MazeParams, position: Float32[np.ndarray, "n 2"], action: Float32[np.ndarray, "n 2"]
) -> Float32[np.ndarray, "n 2"]:
    """Where balls end that go one grain after the other, first along x, and stop at the first that a wall forbids."""
    place = (position.astype(np.float64) * GRAIN).astype(np.int64)
    speed = action.clip(-1, 1).astype(np.float32) * np.float32(params.speed)
    wanted = np.rint(speed.astype(np.float64) * GRAIN).astype(np.int64)
    for axis in (0, 1):
        left = np.abs(wanted[:, axis])
        for _ in range(left.max()):
            ahead = place.copy()
            ahead[:, axis] += np.sign(wanted[:, axis]) * (left > 0)
            free = ~overlaps(params, ahead)
            place = np.where(free[:, None], ahead, place)
            left = np.where(free, left - 1, 0)
    return (place / GRAIN).astype(np.float32)
