"""A maze for people: as text in the terminal, and as a picture with trajectories."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from .params import MazeParams

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any  # matplotlib is imported by what draws: text does without

STYLES = {"#": "48;5;240;38;5;240", ".": "2", "S": "1;34", "G": "1;32", "o": "1;97;48;5;166"}
"""How a terminal that knows 256 colours shows a cell."""


def ansi(params: MazeParams, position: Float[np.ndarray, "2"] | None = None, *, colour: bool = True) -> str:
    """A maze in characters: `#` wall, `.` free, S start, G goal; with a position, `o` is the cell of the ball."""
    signs = np.array([list(row) for row in params.layout])
    signs.flat[params.start_cell], signs.flat[params.goal_cell] = "S", "G"
    if position is not None:
        column, row = np.floor(position).astype(int)
        signs[row, column] = "o"
    if not colour:
        return "\n".join(" ".join(row) for row in signs)
    return "\n".join("".join(f"\x1b[{STYLES[sign]}m{sign} \x1b[0m" for sign in row) for row in signs)


def picture(params: MazeParams, trajectories: Sequence[Float[np.ndarray, "_ 2"]] = ()) -> Figure:
    """The walls, the goal with its tolerance, and a line for each trajectory, from a dot to where it ends."""
    import matplotlib
    from matplotlib.figure import Figure

    from ...run.plots import STYLE

    rows, columns = params.walls.shape
    with matplotlib.rc_context(STYLE):
        found = Figure(figsize=(0.5 * columns, 0.5 * rows), layout="constrained")
        draw(found.subplots(), params, trajectories)
        return found


def draw(axes: Axes, params: MazeParams, trajectories: Sequence[Float[np.ndarray, "_ 2"]] = ()) -> None:
    """The same on axes of a larger picture."""
    from matplotlib.patches import Circle, Rectangle

    from ...run.plots import COLOURS, INK

    rows, columns = params.walls.shape
    for row, column in np.argwhere(params.walls):
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=INK, edgecolor=INK, linewidth=0.5))
    x, y = map(float, params.goal)
    axes.add_patch(Circle((x, y), params.tolerance, facecolor=COLOURS[2], alpha=0.3, linewidth=0))
    axes.plot(x, y, marker="*", color=COLOURS[2], markersize=10, linestyle="none")
    for place, line in enumerate(trajectories):
        colour = COLOURS[place % len(COLOURS)]
        axes.plot(line[:, 0], line[:, 1], color=colour, linewidth=1.2, alpha=0.8)
        axes.plot(line[:1, 0], line[:1, 1], marker="o", color=colour, markersize=4, linestyle="none")
    axes.set(xlim=(0, columns), ylim=(rows, 0), aspect="equal")
    axes.set_axis_off()
