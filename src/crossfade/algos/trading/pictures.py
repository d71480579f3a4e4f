"""What a trading policy earned on the days held out, beside a trader who acts as often at random."""

from pathlib import Path

import numpy as np

from ...run.plots import Curve, curves, to_svg
from .config import TradingConfig

CAPTION = (
    "Sum of the results of the greedy policy over the sessions held out, in dollars, after costs, beside the mean of a "
    "trader who enters as often at random. Synthetic data: a simulation, no promise of profit."
)


def pictures(config: TradingConfig, runs: dict[str, Path]) -> list[tuple[str, str]]:
    """SVG with captions. What a run has not left behind is not shown."""
    lines = []
    for title, run in runs.items():
        for name, label in (("daily", title), ("random_daily", f"{title}: at random")):
            path = run / "eval" / f"{name}.npy"
            if path.exists():
                total = np.cumsum(np.load(path, allow_pickle=False))
                lines.append(Curve(label, np.arange(len(total) + 1.0), np.concatenate([[0.0], total])))
    return [(to_svg(curves(lines, xlabel="sessions", ylabel="dollars")), CAPTION)] if lines else []
