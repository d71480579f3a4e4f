"""What a reader of a report asks first: what was earned, how sure that is, what is left of it once all tries count."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...run.page import details, paragraph, table
from ...run.report import Section
from .config import TradingConfig
from .judging import tearsheet
from .judging.tearsheet import Table

FIRST = ("Result", "Selection", "Firms", "Compared with")
"""Tables that are shown at once; the others are folded away."""
SIDE_BY_SIDE = [
    "run",
    "$ per day",
    "95 % interval",
    "Sharpe",
    "95 % interval",
    "deflated Sharpe",
    "drawdown, $",
    "trades per day",
]


def summary(config: TradingConfig, runs: Mapping[str, Path]) -> list[Section]:
    """Headline and notice of risk, then the tear sheet of every run that was evaluated."""
    studies = {label: study for label, run in runs.items() if (study := last_study(run)) is not None}
    waiting = [label for label in runs if label not in studies]
    said = [paragraph(f"{label}: {tearsheet.headline(study)}") for label, study in studies.items()]
    said += [paragraph(tearsheet.RISK)]
    if waiting:
        said += [paragraph(f"Not evaluated yet, `crossfade eval RUN` does: {', '.join(waiting)}.")]
    if len(studies) > 1:
        rows = [_side_by_side(label, study) for label, study in studies.items()]
        said += [table(SIDE_BY_SIDE, rows, tearsheet.SAYS["figures"])]
        sheets = [details(f"Tear sheet: {label}", _sheet(study)) for label, study in studies.items()]
        return [Section(f"Headline: {config.test_set}", [*said, *sheets])]
    sheets = [Section("Tear sheet", _sheet(study)) for study in studies.values()]
    return [Section(f"Headline: {config.test_set}", said), *sheets]


def last_study(run: Path) -> dict[str, Any] | None:
    """Of the last evaluation that left one."""
    found = [json.loads(path.read_text()).get("study") for path in sorted((run / "eval").glob("*.json"))]
    return next((study for study in reversed(found) if study), None)


def _sheet(study: Mapping[str, Any]) -> list[str]:
    """The tables that are asked for first, and folded away all others."""
    about = f"{study['days']} days from {study['first_day']} to {study['last_day']}"
    tables = {one.title: one for one in tearsheet.tables(study)}
    shown = [titled(tables[name]) for name in FIRST if name in tables]
    return [paragraph(about), *shown, details("More tables", [titled(t) for n, t in tables.items() if n not in FIRST])]


def titled(one: Table) -> str:
    """A table whose title stands in the head of its first column."""
    return table([one.title, *one.head[1:]], one.rows, one.says)


def _side_by_side(label: str, study: Mapping[str, Any]) -> Sequence[Any]:
    figures, picked = study["figures"], study.get("selection") or {}
    per_day, sharpe = figures["per_day"], figures["sharpe"]
    return [
        label,
        *(per_day["value"], tearsheet.interval(per_day)),
        *(sharpe["value"], tearsheet.interval(sharpe)),
        picked.get("deflated_sharpe"),
        figures["max_drawdown"]["value"],
        figures["trades_per_day"]["value"],
    ]
