"""What agents have learned: curves, who gains by acting first, and a game.

What a run has not left behind is not shown; `crossfade eval` leaves everything.
"""

from collections.abc import Mapping
from pathlib import Path

import matplotlib
import numpy as np
from jaxtyping import Float64
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...envs.treasurehunt.sprites import agent_colour
from ...run.metrics import read_metrics
from ...run.page import image
from ...run.plots import COLOURS, INK, STYLE, to_svg
from . import baselines, shown
from .config import TreasurehuntConfig

CLOSELY = 2  # runs whose agents and game are shown
Columns = dict[str, np.ndarray]


def pictures(config: TreasurehuntConfig, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """SVG, and games as GIF, with captions."""
    logs = {label: read_metrics(run / "metrics.jsonl") for label, run in runs.items()}
    logs = {label: log for label, log in logs.items() if _known(log, "train/return") or _known(log, "eval/return")}
    found = []
    if logs:
        caption = (
            "Return of an episode, all agents together. Pale: training, with its exploration; marks: the greedy policy "
            "on games that are always the same, with standard errors. Dashed and dotted: players who have learned "
            "nothing."
        )
        found.append((to_svg(learning(config, logs)), caption))
    for label, log in list(logs.items())[:CLOSELY]:
        if config.env.agents > 1:
            caption = f"{label}: the same of each agent. Dashed and dotted: an agent that has learned nothing."
            found.append((to_svg(each_agent(config, log)), caption))
    if positions := _positions(runs):
        caption = (
            "What those earn who act first, second, ... in their turns, with standard errors; dashed the mean. With "
            "order=fixed the first is always agent 0, and what it has learned counts too."
        )
        found.append((to_svg(by_position(positions)), caption))
    for label, run in list(runs.items())[:CLOSELY]:
        game = shown.load(run)
        if game is not None and (data := shown.animate(config.env, game)) is not None:
            caption = f"{label}: the greedy policy in the game of its median return{_first(config, game)}."
            found.append((image(data, "gif", "an animation of a game"), caption))
    return found


def learning(config: TreasurehuntConfig, logs: Mapping[str, Columns]) -> Figure:
    """Returns of all agents together over epochs, a colour for each run."""
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 3.8), layout="constrained")
        axes = picture.subplots()
        for place, (label, log) in enumerate(logs.items()):
            _draw(axes, log, "return", COLOURS[place % len(COLOURS)], label, mark_width=2.0)
        first = {label: value for log in logs.values() for label, value in _untaught(config, log).items()}
        for place, (label, value) in enumerate(first.items()):
            _level(axes, label, value, ":" if place else "--")
        _finish(picture, axes, "return, all agents")
        return picture


def each_agent(config: TreasurehuntConfig, log: Columns) -> Figure:
    """Returns of every agent over epochs, in the colours of the game."""
    agents = config.env.agents
    with matplotlib.rc_context(STYLE):
        picture = Figure(figsize=(7.2, 3.8), layout="constrained")
        axes = picture.subplots()
        for agent in range(agents):
            colour = "#{:02x}{:02x}{:02x}".format(*agent_colour(config.env, agent))
            _draw(axes, log, f"return_{agent}", colour, f"agent {agent}", mark_width=1.5)
        for place, (label, value) in enumerate(_untaught(config, log).items()):
            _level(axes, label, value / agents, ":" if place else "--")
        _finish(picture, axes, "return of an agent")
        return picture


def by_position(positions: Mapping[str, Float64[np.ndarray, "episodes agents"]]) -> Figure:
    """Bars of what is earned at each place in the turn, a panel for each run on one scale."""
    with matplotlib.rc_context(STYLE):
        columns = min(3, len(positions))
        rows = -(-len(positions) // columns)
        picture = Figure(figsize=(7.2, 0.6 + 2.2 * rows), layout="constrained")
        panels = picture.subplots(rows, columns, squeeze=False, sharey=True)
        for axes in panels.flat[len(positions) :]:
            axes.remove()
        for place, (axes, (label, earned)) in enumerate(zip(panels.flat, positions.items(), strict=False)):
            mean, names = earned.mean(0), [_ordinal(k + 1) for k in range(earned.shape[1])]
            error = earned.std(0, ddof=1) / np.sqrt(len(earned)) if len(earned) > 1 else np.zeros_like(mean)
            colour = COLOURS[place % len(COLOURS)]
            axes.bar(names, mean, color=colour, width=0.5, yerr=error, ecolor=INK, capsize=3)
            axes.axhline(mean.mean(), color=INK, linewidth=1, linestyle="--")
            axes.axhline(0, color=INK, linewidth=0.6)
            axes.set(title=label if len(positions) > 1 else "", xlabel="acts in its turn")
            axes.title.set_fontsize("small")
            axes.grid(True, axis="y")
            axes.set_axisbelow(True)
        for axes in panels[:, 0]:
            axes.set_ylabel("return")
        return picture


def _draw(axes: Axes, log: Columns, name: str, colour: str, label: str, mark_width: float) -> None:
    """Training as a pale line, evaluations as marks."""
    judged = _known(log, f"eval/{name}")
    if _known(log, f"train/{name}"):
        step, value = _column(log, f"train/{name}")
        axes.plot(step, value, color=colour, linewidth=1.2, alpha=0.4, label="" if judged else label)
    if judged:
        step, value = _column(log, f"eval/{name}")
        error = _column(log, f"eval/{name}_se")[1] if _known(log, f"eval/{name}_se") else None
        axes.errorbar(
            step, value, error, color=colour, linewidth=mark_width, marker="o", markersize=4, capsize=3, label=label
        )


def _level(axes: Axes, label: str, value: float, style: str) -> None:
    axes.axhline(value, color=INK, linewidth=1.1, linestyle=style, label=label)


def _finish(picture: Figure, axes: Axes, ylabel: str) -> None:
    axes.set(xlabel="epochs", ylabel=ylabel)
    axes.margins(x=0.02)
    axes.grid(True)
    picture.legend(loc="outside lower center", fontsize="small", ncols=3)


def _untaught(config: TreasurehuntConfig, log: Columns) -> dict[str, float]:
    """The return of players who have learned nothing, as it was last measured."""
    last = {name: float(_column(log, name)[1][-1]) for name in ("eval/random", "eval/nearest") if _known(log, name)}
    return baselines.named(config.env, last)


def _positions(runs: Mapping[str, Path]) -> dict[str, Float64[np.ndarray, "episodes agents"]]:
    """Of every run what is earned at each place in the turn; nothing where an agent plays alone."""
    paths = {label: run / "eval" / "positions.npy" for label, run in runs.items()}
    found = {label: np.load(path, allow_pickle=False) for label, path in paths.items() if path.exists()}
    return {label: array for label, array in found.items() if array.shape[1] > 1}


def _first(config: TreasurehuntConfig, game: Mapping[str, np.ndarray]) -> str:
    kept = len(game["shown_grids"]) - 1
    return "" if kept == config.env.turns else f", its first {kept} turns"


def _known(log: Columns, name: str) -> bool:
    return name in log and bool(np.isfinite(log[name]).any())


def _column(log: Columns, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values, where there are any."""
    known = np.isfinite(log[name])
    return log["step"][known], log[name][known]


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
