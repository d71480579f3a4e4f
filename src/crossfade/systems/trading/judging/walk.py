"""A walk forward: every fold judged by a policy that learned from what lies before it, all folds on one page."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ....config import to_yaml
from ....run.page import code, figure, paragraph, table
from ....run.report import Section, write_report
from ..config import TradingConfig
from . import statistics, tearsheet
from .findings import Findings, join
from .stage import StudyEffort
from .study import study


def judge(config: TradingConfig, folds: Sequence[Findings], effort: StudyEffort) -> dict[str, Any]:
    """The study of all folds as one stretch of days, and a row for each fold."""
    whole = study(config, join(folds), effort)
    return {**whole, "folds": [_row(number, fold) for number, fold in enumerate(folds)]}


def write_page(
    path: Path, config: TradingConfig, found: Mapping[str, Any], folds: Sequence[Findings], test_set: str
) -> Path:
    """Headline, equity, figures, the folds and the settings."""
    from ....run.plots import to_svg
    from ..pictures import SIMULATED, WORTH, forest, joined_equity, worth_of

    caption = (
        "Sum of results over all folds, each by a policy that learned only from days before it; dotted lines between "
    )
    pictures = [
        figure(to_svg(joined_equity(folds)), caption + f"folds. Below: drawdown. {SIMULATED}"),
        figure(to_svg(forest(worth_of({"policy": found}))), WORTH),
    ]
    sections = [
        Section("Headline", [paragraph(tearsheet.headline(found)), paragraph(tearsheet.RISK), *pictures]),
        *(Section(t.title, [table(t.head, t.rows, t.says)]) for t in tearsheet.tables(found)),
        Section("Settings", [code(to_yaml(config))]),
    ]
    about = f"{test_set}: {found['days']} days from {found['first_day']} to {found['last_day']}"
    return write_report(path, f"Walk forward: {' '.join(config.markets)}, {len(folds)} folds", sections, about)


def _row(number: int, fold: Findings) -> dict[str, Any]:
    daily = fold.columns["daily"]
    return {
        "fold": number,
        "first_day": str(np.datetime64(int(fold.days[0]), "D")),
        "last_day": str(np.datetime64(int(fold.days[-1]), "D")),
        "days": len(daily),
        "per_day": float(daily.mean()),
        "sharpe": float(statistics.sharpe(daily)),
        "trades": int(fold.columns["trades"].sum()),
        "max_drawdown": float(statistics.max_drawdown(daily)),
    }
