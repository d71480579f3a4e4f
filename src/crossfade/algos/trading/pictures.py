"""What a trading policy earned on the days held out, beside traders who see nothing."""

from pathlib import Path

import numpy as np

from ...run.plots import Curve, curves, to_svg
from .baselines import BLIND
from .config import TradingConfig

CAPTION = (
    "Sum of the results of the greedy policy over the sessions held out, in dollars, after costs, beside the mean of "
    "traders who see nothing and enter as often: on a random side, long only, short only. Synthetic data: a "
    "simulation, no promise of profit."
)


def pictures(config: TradingConfig, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """SVG with captions. What a run has not left behind is not shown."""
    lines = []
    for title, run in runs.items():
        names = {"daily": title}
        if not lines:  # those who see nothing differ between runs only in how often they enter: the first run's will do
            names |= {f"{name}_daily": f"{name} (as often as {title})" for name in BLIND}
        for name, label in names.items():
            path = run / "eval" / f"{name}.npy"
            if path.exists():
                total = np.cumsum(np.load(path, allow_pickle=False))
                lines.append(Curve(label, np.arange(len(total) + 1.0), np.concatenate([[0.0], total])))
    return [(to_svg(curves(lines, xlabel="sessions", ylabel="dollars")), CAPTION)] if lines else []
