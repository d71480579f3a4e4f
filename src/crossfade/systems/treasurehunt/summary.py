"""What a reader of a report asks first: what was earned beside players who have learned nothing, and in other turns."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...run.files import read_json
from ...run.metrics import read_metrics
from ...run.page import details, paragraph, table
from ...run.report import Section
from .config import TreasurehuntConfig
from .verdict import HEAD, SAYS, headline, rows


def summary(config: TreasurehuntConfig, runs: Mapping[str, Path]) -> list[Section]:
    """The return of every run, then its policy in every kind of turns."""
    judged = {label: found for label, run in runs.items() if (found := last_judged(run)) is not None}
    said, waiting = [], [label for label in runs if label not in judged]
    for label, run in runs.items():
        if found := judged.get(label):
            told = headline(config, found["study"]["figures"], found["study"]["episodes"])
            said.append(f"{label}, step {found['step']:,}: {told}")
        elif found := last_logged(run):
            said.append(f"{label}, step {found['step']:,}: {headline(config, found)}")
    if waiting:
        said.append(f"Not yet judged in every kind of turns, `crossfade eval RUN` does: {', '.join(waiting)}.")
    blocks = [table(HEAD, rows(found["study"]["turns"]), SAYS) for found in judged.values()]
    if len(blocks) > 1:
        blocks = [details(f"In every kind of turns: {label}", [b]) for label, b in zip(judged, blocks, strict=True)]
    return [Section("Headline", [*map(paragraph, said), *blocks])]


def last_judged(run: Path) -> dict[str, Any] | None:
    """What the last evaluation with a study left."""
    found = [read_json(path, "an evaluation") for path in sorted((run / "eval").glob("*.json"))]
    return next((one for one in reversed(found) if one.get("study")), None)


def last_logged(run: Path) -> dict[str, Any]:
    """The row of the log with the last evaluation in training; empty if there was none."""
    metrics = read_metrics(run / "metrics.jsonl")
    known = np.flatnonzero(np.isfinite(metrics.get("eval/return", np.array([]))))
    return {name: column[known[-1]].item() for name, column in metrics.items()} if len(known) else {}
