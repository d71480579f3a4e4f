"""A point-mass maze as parameters: a map, a task on it, and how the ball moves. Framework-free.

The specification, which `maze_numpy.py` and `maze_jax.py` keep:

**Map.** Cells of side 1: cell (row, column) lies from x = column to column + 1 and from y = row to row + 1, y pointing
down. `#` is a wall, `.` is free, and those at the border are walls. A cell's number is row * columns + column.

**Task.** Each map has five, a start cell and a goal cell each. An episode begins at the centre of the start cell, moved
along each axis by (2 u - 1) `jitter`, where `begin` is given the two numbers u. The goal is the centre of its cell.

**Moves.** An action is two numbers, clipped to [-1, 1]: `speed` times the first is how far the ball wants to go along
x, then `speed` times the second along y. To walls the ball is a square that reaches RADIUS to each side. Let `here` be
the column of its centre: where a cell of column here + 1 is a wall, in one of the rows that the square overlaps, x ends
at here + 1 - RADIUS at most; where one of column here - 1 is, at here + RADIUS at least. Along y it is the same, with
the rows that follow from x after its move. `speed` is at most 1 - RADIUS, so that nothing is tunnelled through.

**Reward** is 0 where the ball, after the move, is within `tolerance` of the goal, and the episode is `terminated`; else
-1. An episode that has taken `limit` steps without that is `truncated`.

**Observation.** The position (x, y), float32, in cells.

**Grain.** Positions are multiples of 1 / GRAIN: moves and starts are rounded to the nearest, halves to even. So float32
holds every sum exactly, and the sum of the squares of two distances up to 1 (along an axis a distance counts as 1 at
most, which is more than any `tolerance`): NumPy and JAX agree bit for bit, whether products and sums are fused or not.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Integer

from ...ranges import Count, NotNegative, Range, check

RADIUS = 0.25
"""How far the ball reaches to each side, in cells."""
GRAIN = 2048
"""Positions along the side of a cell."""
Cell = tuple[int, int]

MAPS: dict[str, tuple[str, ...]] = {
    "umaze": (
        "#######",
        "#.....#",
        "#####.#",
        "#.....#",
        "#######",
    ),
    "medium": (
        "#########",
        "#...#...#",
        "#.#.#.#.#",
        "#.#...#.#",
        "#.###.#.#",
        "#.....#.#",
        "###.###.#",
        "#.......#",
        "#########",
    ),
    "large": (
        "#############",
        "#...#.......#",
        "#.#.#.#####.#",
        "#.#...#...#.#",
        "#.#####.#.#.#",
        "#.......#...#",
        "###.#.#####.#",
        "#...#.......#",
        "#############",
    ),
}
"""Layouts, row by row."""

TASKS: dict[str, tuple[tuple[Cell, Cell], ...]] = {
    "umaze": (((1, 1), (3, 1)), ((3, 1), (1, 1)), ((1, 2), (3, 1)), ((3, 2), (1, 1)), ((1, 1), (3, 2))),
    "medium": (((1, 1), (7, 7)), ((7, 1), (1, 7)), ((5, 1), (3, 7)), ((7, 7), (1, 3)), ((1, 5), (7, 1))),
    "large": (((1, 1), (7, 11)), ((7, 1), (1, 11)), ((1, 5), (5, 1)), ((3, 9), (7, 1)), ((7, 7), (1, 3))),
}
"""Of each task (row, column) of its start and of its goal."""


class State(NamedTuple):
    """Episodes under way."""

    position: Any  # (*batch, 2) float32: x and y
    t: Any  # (*batch,) int32: steps taken


@dataclass(frozen=True)
class MazeParams:
    """A map and a task; the module's docstring is the specification."""

    map: Literal["umaze", "medium", "large"] = "medium"
    """Layout of the walls."""
    task: Literal[1, 2, 3, 4, 5] = 1
    """Which start and goal."""
    speed: Annotated[float, Range(2**-6, 1 - RADIUS)] = 0.25
    """Cells along each axis in a step, at most."""
    limit: Count = 200
    """Steps of an episode at most."""
    tolerance: Annotated[float, Range(above=0, below=1)] = 0.5
    """How near to the goal is success."""
    jitter: Annotated[float, Range(0, 0.5 - RADIUS)] = 0.25
    """How far from the centre of its cell an episode begins, along each axis at most."""
    noise: NotNegative = 0.5
    """Standard deviation of what is added to the actions of scripted policies when they collect data."""

    numpy: ClassVar[str] = "crossfade.envs.maze.maze_numpy:Maze"
    jax: ClassVar[str] = "crossfade.envs.maze.maze_jax:Maze"

    def __post_init__(self) -> None:
        check(self)

    def __str__(self) -> str:
        return f"maze {self.map}, task {self.task}, speed={self.speed:g}, limit={self.limit}"

    @property
    def layout(self) -> tuple[str, ...]:
        """The map, row by row."""
        return MAPS[self.map]

    @cached_property
    def walls(self) -> Bool[np.ndarray, "rows columns"]:
        """Where the walls are."""
        return np.array([[sign == "#" for sign in row] for row in self.layout])

    @cached_property
    def free(self) -> Int32[np.ndarray, " free"]:
        """Numbers of the cells that are not walls."""
        return np.flatnonzero(~self.walls).astype(np.int32)

    @property
    def start_cell(self) -> int:
        """Number of the cell in which episodes begin."""
        return self._number(TASKS[self.map][self.task - 1][0])

    @property
    def goal_cell(self) -> int:
        """Number of the cell whose centre is the goal."""
        return self._number(TASKS[self.map][self.task - 1][1])

    @cached_property
    def start(self) -> Float32[np.ndarray, "2"]:
        """Around which position episodes begin."""
        return self.centre(np.array(self.start_cell))

    @cached_property
    def goal(self) -> Float32[np.ndarray, "2"]:
        """The position to be reached."""
        return self.centre(np.array(self.goal_cell))

    def centre(self, cell: Integer[np.ndarray, "*batch"]) -> Float32[np.ndarray, "*batch 2"]:
        """Positions of the centres of cells."""
        row, column = np.divmod(cell, self.walls.shape[1])
        return np.stack([column, row], -1).astype(np.float32) + np.float32(0.5)

    def _number(self, cell: Cell) -> int:
        return cell[0] * self.walls.shape[1] + cell[1]
