"""What a GFlowNet has learned, side by side with what it should have."""

from pathlib import Path
from typing import Any

import numpy as np

from ...run.plots import to_svg
from .config import GFlowNetConfig
from .known import graph_of


def pictures(config: GFlowNetConfig, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """On grids the target and the exact distribution each run ended with, as SVG with a caption; else none."""
    params: Any = config.env
    graph = graph_of(params)
    if graph is None or not all(hasattr(params, name) for name in ("n_dim", "length")):
        return []
    from ...envs.grid.view import figure

    panels = {"target": graph.target}
    for title, run in runs.items():
        if (path := run / "eval" / "distribution.npy").exists():
            panels[title] = np.load(path, allow_pickle=False)
    return [(to_svg(figure(panels, params)), "Target and learned distribution over the objects, one colour scale.")]
