"""What an offline agent has learned: success by phase, its losses, and its ways through the maze.

What a run has not left behind is not shown; `crossfade eval` leaves everything.
"""

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...algos.offline.batch import PHASES
from ...envs.maze.params import MazeParams
from ...envs.maze.view import draw
from ...run.metrics import read_metrics
from ...run.plots import COLOURS, INK, STYLE, to_svg
from .config import OfflineDataConfig

CLOSELY = 2  # runs whose losses and ways are shown
MOST_WAYS = 50
ARRIVED, LOST = COLOURS[0], COLOURS[1]
COLUMNS = 3  # of panels
Columns = dict[str, np.ndarray]


def pictures(config: OfflineDataConfig, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """SVG with captions."""
    logs = {label: read_metrics(run / "metrics.jsonl") for label, run in runs.items()}
    found = []
    if judged := {label: log for label, log in logs.items() if _known(log, "eval/success")}:
        caption = (
            "Success of the policy without noise, always on the same episodes, with standard errors. Left of the "
            "dashed line the agent learns without rewards. Thin: those who collected the data, and random actions."
        )
        found.append((to_svg(learning(config, judged)), caption))
    for label, log in list(logs.items())[:CLOSELY]:
        if terms := _terms(config, log):
            caption = f"{label}: terms of the loss in training (lines) and on data that are held out (dots)."
            if config.actor_every > 1 and config.agent.when_full:
                idle = ", ".join(config.agent.when_full)
                caption += f" In training {idle} is 0 in all but every {config.actor_every}th update of fine-tuning."
            found.append((to_svg(losses(config, log, terms)), caption))
    for label, run in list(runs.items())[:CLOSELY]:
        if (ways := _ways(run)) is not None:
            paths, success = ways
            shown = min(len(success), MOST_WAYS)
            caption = (
                f"{label}: the ways of {shown} episodes of its last evaluation, from a dot to where they end; "
                f"{int(success[:shown].sum())} of them arrive (blue), the others do not (orange)."
            )
            found.append((to_svg(maze(config.env, paths[:, :shown], success[:shown])), caption))
    return found


def learning(config: OfflineDataConfig, logs: Mapping[str, Columns]) -> Figure:
    """Success over updates, a colour for each run."""
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 3.8), layout="constrained")
        axes = picture.subplots()
        for place, (label, log) in enumerate(logs.items()):
            step, value = _column(log, "eval/success")
            error = _column(log, "eval/success_se")[1] if _known(log, "eval/success_se") else None
            colour = COLOURS[place % len(COLOURS)]
            shape = {"linewidth": 1.8, "marker": "o", "markersize": 4, "capsize": 3}
            axes.errorbar(step, value, error, color=colour, label=label, **shape)
        for name, style in (("scripted", "-"), ("random", ":")):
            values = [_column(log, f"eval/{name}")[1][-1] for log in logs.values() if _known(log, f"eval/{name}")]
            if values:
                axes.axhline(values[0], color=INK, linewidth=0.9, linestyle=style, label=name)
        _phases(axes, config)
        axes.set(xlabel="updates", ylabel="success", ylim=(-0.04, 1.04))
        axes.set_xlim(left=0)
        axes.grid(True)
        picture.legend(loc="outside lower center", fontsize="small", ncols=3)
        return picture


def losses(config: OfflineDataConfig, log: Columns, terms: list[str]) -> Figure:
    """A panel for each term of the loss."""
    with matplotlib.rc_context(STYLE):
        columns = min(COLUMNS, len(terms))
        rows = -(-len(terms) // columns)
        picture = Figure(figsize=(7.2, 0.4 + 1.9 * rows), layout="constrained")
        panels = picture.subplots(rows, columns, squeeze=False, sharex=True)
        for axes in panels.flat[len(terms) :]:
            axes.remove()
        for axes, term in zip(panels.flat, terms, strict=False):
            if _known(log, f"train/{term}"):
                axes.plot(*_column(log, f"train/{term}"), color=COLOURS[0], linewidth=1.2)
            for phase in PHASES:
                name = f"eval/{phase}/{term}"
                if _known(log, name):
                    step, value = _column(log, name)
                    own = (step <= config.pretrain) == (phase == "pretraining")
                    axes.plot(step[own], value[own], "o", color=COLOURS[1], markersize=3)
            _phases(axes, config)
            axes.set_title(term, fontsize="small")
            axes.set_xlim(left=0)
            axes.grid(True)
            axes.tick_params(labelsize="small")
        picture.supxlabel("updates", fontsize="small")
        return picture


def maze(
    params: MazeParams, paths: Float[np.ndarray, "steps episodes 2"], success: Bool[np.ndarray, " episodes"]
) -> Figure:
    """The maze with ways that arrive and ways that do not."""
    rows, columns = params.walls.shape
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(0.5 * columns, 0.5 * rows), layout="constrained")
        axes = picture.subplots()
        draw(axes, params)
        for episode in np.argsort(~success, kind="stable")[::-1]:  # those that arrive above the others
            x, y = paths[:, episode].T
            colour = ARRIVED if success[episode] else LOST
            axes.plot(x, y, color=colour, linewidth=1.1, alpha=0.5)
            axes.plot(x[:1], y[:1], marker="o", color=colour, markersize=3, linestyle="none")
        return picture


def _terms(config: OfflineDataConfig, log: Columns) -> list[str]:
    """The terms of both phases that the log has, in their order."""
    named = dict.fromkeys(term for phase in PHASES for term in config.agent.terms[phase])
    return [term for term in named if _known(log, f"train/{term}")]


def _ways(run: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Positions and success of the last evaluation; None where it was in another world than the maze."""
    places = [run / "eval" / f"{name}.npy" for name in ("paths", "success")]
    if not all(place.exists() for place in places):
        return None
    paths, success = (np.load(place, allow_pickle=False) for place in places)
    return paths, success.astype(bool)


def _phases(axes: Axes, config: OfflineDataConfig) -> None:
    if config.breaks:
        axes.axvline(config.pretrain, color=INK, linewidth=1, linestyle="--")


def _known(log: Columns, name: str) -> bool:
    return name in log and bool(np.isfinite(log[name]).any())


def _column(log: Columns, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values, where there are any."""
    known = np.isfinite(log[name])
    return log["step"][known], log[name][known]
