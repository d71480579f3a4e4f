"""Shortest ways through a maze, from every cell to every other. Framework-free."""

from collections import deque
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int32


class Paths(NamedTuple):
    """Tables over the numbers of cells."""

    following: Int32[np.ndarray, "goals cells"]
    """The cell after this one on a shortest way to the goal; the same cell at the goal, and where there is no way."""
    distance: Int32[np.ndarray, "goals cells"]
    """Cells to go; -1 where there is no way."""


@lru_cache
def shortest_paths(layout: tuple[str, ...]) -> Paths:
    """Breadth first from every goal; of equally short ways that of the first neighbour: up, left, right, down."""
    columns, signs = len(layout[0]), "".join(layout)
    cells = np.arange(len(signs), dtype=np.int32)
    following, distance = np.tile(cells, (len(cells), 1)), np.full((len(cells), len(cells)), -1, np.int32)
    around = lambda cell: (cell - columns, cell - 1, cell + 1, cell + columns)
    for goal in np.flatnonzero(np.array(list(signs)) == "."):
        far, queue = distance[goal], deque([int(goal)])
        far[goal] = 0
        while queue:
            cell = queue.popleft()
            for beside in around(cell):
                if signs[beside] == "." and far[beside] < 0:
                    far[beside] = far[cell] + 1
                    queue.append(beside)
        for cell in np.flatnonzero(far > 0):
            following[goal, cell] = next(beside for beside in around(cell) if far[beside] == far[cell] - 1)
    for table in (following, distance):
        table.flags.writeable = False  # shared by whoever asks for the same layout
    return Paths(following, distance)
