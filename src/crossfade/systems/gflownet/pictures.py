"""What a GFlowNet has learned, side by side with what it should have."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ...algos.gflownet.config import GFlowNetConfig
from ...envs.dag.continuous_params import ContinuousParams
from ...envs.dag.grid.view import pairs, plane, sampled_plane
from ...envs.dag.ground_truth import graph_of, target_draws, target_of
from ...random import random_numpy as random
from ...run.plots import COLOURS, INK, STYLE, Figure, matplotlib, to_svg

DRAWS = 20_000  # objects of the target that stand for it where it cannot be listed
POINTS = 1_000  # of a scatter
Plane = Float[np.ndarray, "rows columns"]


def pictures(config: GFlowNetConfig, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """The distributions of the runs beside the target's where objects lie in planes, and log p against log R.

    SVG with captions. What a run has not left behind is not shown.
    """
    if isinstance(config.env, ContinuousParams):
        return _continuous(config.env, runs)
    shown = []
    if all(hasattr(config.env, name) for name in ("n_dim", "length")):
        shown += _grid(config.env, runs)
    return shown + _agreement(config.env, runs)


def _grid(params: Any, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """Target and learned distribution over two dimensions at a time."""
    graph, learned = graph_of(params), _load(runs, "distribution")
    if graph is not None and learned:
        panels = {
            title: [plane(p, params, pair) for pair in pairs(params)]
            for title, p in {"target": graph.target, **learned}.items()
        }
        origin = "exact"
    elif graph is None and (learned := _load(runs, "objects")) and target_of(params) is not None:
        drawn = target_draws(params, DRAWS, tuple(map(int, random.key(0))))
        panels = {
            title: [sampled_plane(x, params, pair) for pair in pairs(params)]
            for title, x in {"target": drawn, **learned}.items()
        }
        counts = ", ".join(f"{len(x)} of {title}" for title, x in learned.items())
        origin = f"histograms of {DRAWS} exact draws from the target and of objects made: {counts}"
    else:
        return []
    what = "Target and learned distribution over the objects" + (", marginals" if params.n_dim > 2 else "")
    names = [(f"dimension {i}", f"dimension {j}") for i, j in pairs(params)]
    return [(to_svg(heat(panels, names)), f"{what}; {origin}. One colour scale in each row.")]


def _continuous(params: Any, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """Target and learned mass of the cells of a plane."""
    from ...algos.gflownet.continuous.evaluation import histogram, target_cells

    points = _load(runs, "objects")
    if params.n_dim != 2 or not points:
        return []
    panels = {"target": [target_cells(params)]} | {title: [histogram(params, x)] for title, x in points.items()}
    counts = ", ".join(f"{len(x)} of {title}" for title, x in points.items())
    caption = f"Mass of the target in each cell, and histograms of the points made: {counts}. One colour scale."
    return [(to_svg(heat(panels, [("dimension 0", "dimension 1")])), caption)]


def _agreement(params: Any, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """The log-probability with which a run makes objects against their log-reward."""
    graph, target = graph_of(params), target_of(params)
    if graph is not None:
        stops = graph.forward_mask[:, -1]
        tiny = np.finfo(np.float64).tiny
        panels = {
            title: np.stack([graph.log_reward[stops], np.log(np.maximum(p[stops], tiny))])
            for title, p in _load(runs, "distribution").items()
        }
        origin = "exact, for every object"
    else:
        panels = _load(runs, "agreement")
        origin = "estimated from backward trajectories, for objects of the target"
    if not panels:
        return []
    log_z = graph.log_z if graph is not None else target.log_z if target is not None else None
    line = "" if log_z is None else "; on the line p = R / Z"
    return [(to_svg(scatter(panels, log_z)), f"log p against log R, {origin}{line}.")]


def heat(panels: Mapping[str, Sequence[Plane]], names: Sequence[tuple[str, str]]) -> Figure:
    """A column for each title and a row for each plane, which has one colour scale; `names` are those of its axes."""
    with matplotlib.rc_context(STYLE):
        canvas = Figure(figsize=(2.7 * len(panels) + 1.2, 2.7 * len(names) + 0.4), layout="constrained")
        grid = canvas.subplots(len(names), len(panels), squeeze=False)
        for row, (down, across) in enumerate(names):
            top = max(planes[row].max() for planes in panels.values())
            for axes, (title, planes) in zip(grid[row], panels.items(), strict=True):
                axes.imshow(planes[row], vmin=0, vmax=top, cmap="viridis")
                axes.set(title=title if row == 0 else "", xlabel=across)
                axes.locator_params(nbins=5, integer=True)
            grid[row, 0].set_ylabel(down)
            canvas.colorbar(grid[row, -1].images[0], ax=grid[row].tolist(), shrink=0.8)
        return canvas


def scatter(panels: Mapping[str, Float[np.ndarray, "2 objects"]], log_z: float | None) -> Figure:
    """log p over log R, a panel for each title, on the same axes; with log Z, the line on which p = R / Z."""
    with matplotlib.rc_context(STYLE):
        canvas = Figure(figsize=(2.7 * len(panels) + 0.6, 2.9), layout="constrained")
        row = canvas.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)[0]
        for index, (axes, (title, points)) in enumerate(zip(row, panels.items(), strict=True)):
            points = points[:, np.argsort(points[0], kind="stable")]
            points = points[:, np.unique(np.linspace(0, points.shape[1] - 1, POINTS).astype(int))]
            axes.scatter(*points, s=9, alpha=0.5, linewidth=0, color=COLOURS[index % len(COLOURS)])
            if log_z is not None:
                ends = points[0, [0, -1]]
                axes.plot(ends, ends - log_z, color=INK, linewidth=1)
            axes.set(title=title, xlabel="log R")
            axes.grid(True)
        row[0].set_ylabel("log p")
        return canvas


def _load(runs: dict[str, Path], name: str) -> dict[str, np.ndarray]:
    """An array of each run's last evaluation, where it has one."""
    paths = {title: run / "eval" / f"{name}.npy" for title, run in runs.items()}
    return {title: np.load(path, allow_pickle=False) for title, path in paths.items() if path.exists()}
