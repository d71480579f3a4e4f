"""What robots have learned: curves, the terms of the reward, and an episode.

What a run has not left behind is not shown; `crossfade eval` leaves everything.
"""

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from ...envs.robot.state import Terms
from ...run.metrics import read_metrics
from ...run.page import image
from ...run.plots import COLOURS, INK, STYLE, Curve, curves, to_svg
from . import shown
from .config import RobotConfig

CLOSELY = 2  # runs whose terms and episode are shown
Columns = dict[str, np.ndarray]
WALKED = {"eval/distance": "metres walked", "eval/speed": "forward speed, m/s", "eval/falls": "share of falls"}


def pictures(config: RobotConfig, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """SVG, and episodes as GIF, with captions."""
    logs = {label: read_metrics(run / "metrics.jsonl") for label, run in runs.items()}
    found = []
    for name, ylabel in WALKED.items():
        lines = [Curve(label, *_column(log, name)) for label, log in logs.items() if _known(log, name)]
        if lines:
            caption = f"{ylabel.capitalize()} by the greedy policy, in episodes that are always the same."
            found.append((to_svg(curves(lines, xlabel="updates", ylabel=ylabel)), caption))
    for label, log in list(logs.items())[:CLOSELY]:
        if any(_known(log, f"train/reward_{term}") for term in Terms._fields):
            caption = f"{label}: what each term of the reward brings in a step of training, its weight included."
            found.append((to_svg(by_term(log)), caption))
    for label, run in list(runs.items())[:CLOSELY]:
        episode = shown.load(run)
        if episode is not None and (data := shown.animate(config.env, episode)) is not None:
            caption = f"{label}: the greedy policy in the episode of its median distance."
            found.append((image(data, "gif", "an animation of a robot"), caption))
    return found


def by_term(log: Mapping[str, np.ndarray]) -> Figure:
    """A line for each term of the reward over updates; those that never counted are left out."""
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 3.8), layout="constrained")
        axes = picture.subplots()
        names = [term for term in Terms._fields if _known(dict(log), f"train/reward_{term}")]
        used = [term for term in names if np.any(_column(dict(log), f"train/reward_{term}")[1])]
        for place, term in enumerate(used):
            step, value = _column(dict(log), f"train/reward_{term}")
            axes.plot(step, value, color=COLOURS[place % len(COLOURS)], label=term.replace("_", " "))
        axes.axhline(0, color=INK, linewidth=0.6)
        axes.set(xlabel="updates", ylabel="reward of a step")
        axes.margins(x=0.02)
        axes.grid(True)
        if used:
            picture.legend(loc="outside lower center", fontsize="small", ncols=4)
        return picture


def _known(log: Columns, name: str) -> bool:
    return name in log and bool(np.isfinite(log[name]).any())


def _column(log: Columns, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values, where there are any."""
    known = np.isfinite(log[name])
    return log["step"][known], log[name][known]
