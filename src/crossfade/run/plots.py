"""Pictures of runs, drawn by matplotlib without a display: SVG for reports, PNG for files."""

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import UsageError, nearest
from .files import write_bytes
from .page import show

try:
    import matplotlib
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise UsageError("pictures need matplotlib: pip install 'crossfade[report]'.") from error

COLOURS = ("#4c78d0", "#e07b39", "#3f9e6b", "#c44e6c", "#8a6fc0", "#2f9fae", "#a98b2d", "#7f7f7f")
INK = "#5c6675"  # readable on white and on dark; in SVG it becomes the page's own text colour
STYLE: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "font.size": 10,
    "grid.alpha": 0.25,
    "grid.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "crossfade",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
POINTS = 500


class Curve(NamedTuple):
    """One line of one run. Curves of the same label are drawn as one: their mean, and a band from lowest to highest."""

    label: str
    x: Float[np.ndarray, " rows"]
    y: Float[np.ndarray, " rows"]


def curves(lines: Sequence[Curve], *, xlabel: str, ylabel: str, log: bool = False) -> Figure:
    """Learning curves; with `log`, on a logarithmic axis. Later lines are thinner, so that equal ones all show."""
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes = picture.subplots()
        labels = list(dict.fromkeys(line.label for line in lines))
        for index, label in enumerate(labels):
            same, width = [line for line in lines if line.label == label], 1.3 + 0.9 * (len(labels) - 1 - index)
            _draw(axes, same, COLOURS[index % len(COLOURS)], width)
        axes.set(xlabel=xlabel, ylabel=ylabel, yscale="log" if log else "linear")
        axes.grid(True)
        if lines:
            axes.legend(fontsize="small")
        return picture


def bars(
    values: Mapping[str, float],
    *,
    xlabel: str,
    baseline: str | None = None,
    spread: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """One bar for each name, the figure beside it and how many times the `baseline` it is; `spread` is (low, high)."""
    if baseline is not None and baseline not in values:
        known = ", ".join(values)
        raise UsageError(f"unknown baseline {baseline!r}.{nearest(baseline, values)} Known: {known}.")
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 0.8 + 0.42 * max(len(values), 1)), layout="constrained")
        axes = picture.subplots()
        names = list(values)
        for place, name in enumerate(names):
            low, high = (spread or {}).get(name, (values[name], values[name]))
            axes.barh(place, values[name], color=COLOURS[place % len(COLOURS)], height=0.65)
            axes.plot([low, high], [place, place], color=INK, linewidth=1.5)
            times = "" if baseline in (None, name) else f"  ({values[name] / values[baseline]:.3g}x)"
            axes.annotate(
                f"{show(values[name])}{times}",
                (max(high, values[name]), place),
                textcoords="offset points",
                xytext=(5, 0),
                va="center",
                fontsize="small",
            )
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.margins(x=0.25)
        axes.set_xlim(left=0)
        axes.set_xlabel(xlabel)
        return picture


def to_svg(picture: Figure) -> str:
    """The picture as an SVG element to stand in a page, in the page's text colour; equal pictures give equal text."""
    buffer = io.StringIO()
    with matplotlib.rc_context(STYLE):
        picture.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    element = text[text.index("<svg") :].replace(INK, "currentColor")
    return re.sub(r"<metadata>.*?</metadata>", "", element, flags=re.DOTALL)


def save_png(picture: Figure, path: Path) -> Path:
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        picture.savefig(buffer, format="png", dpi=150, facecolor="white")
    return write_bytes(path, buffer.getvalue())


def _draw(axes: Axes, same: Sequence[Curve], colour: str, width: float) -> None:
    """The mean of curves on a common grid, where all of them are defined, and the band between the extremes."""
    if len(same) == 1:
        axes.plot(same[0].x, same[0].y, color=colour, linewidth=width, label=same[0].label)
        return
    grid = np.unique(np.concatenate([line.x for line in same]))
    grid = grid[(grid >= max(line.x.min() for line in same)) & (grid <= min(line.x.max() for line in same))]
    if len(grid) > POINTS:
        grid = np.linspace(grid[0], grid[-1], POINTS)
    values = np.stack([np.interp(grid, line.x, line.y) for line in same])
    axes.plot(grid, values.mean(0), color=colour, linewidth=width, label=f"{same[0].label} (mean of {len(same)})")
    axes.fill_between(grid, values.min(0), values.max(0), color=colour, alpha=0.2, linewidth=0)
