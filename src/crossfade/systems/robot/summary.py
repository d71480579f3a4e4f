"""What a reader of a report asks first: how far a robot walks, how often it falls, which pushes it bears."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...run.files import read_json
from ...run.page import details, paragraph, table
from ...run.report import Section
from .config import RobotConfig
from .verdict import HEAD, SAYS, headline, rows


def summary(config: RobotConfig, runs: Mapping[str, Path]) -> list[Section]:
    """A sentence for every run that was judged, then the pushes."""
    judged = {label: found for label, run in runs.items() if (found := last_judged(run)) is not None}
    said = [f"{label}, step {found['step']:,}: {headline(found['study'])}" for label, found in judged.items()]
    if waiting := [label for label in runs if label not in judged]:
        said.append(f"Not yet judged closely, `crossfade eval RUN` does: {', '.join(waiting)}.")
    blocks = [table(HEAD, rows(found["study"]["pushes"]), SAYS) for found in judged.values()]
    if len(blocks) > 1:
        blocks = [details(f"Pushes: {label}", [block]) for label, block in zip(judged, blocks, strict=True)]
    return [Section(f"Headline: {config.test_set}", [*map(paragraph, said), *blocks])]


def last_judged(run: Path) -> dict[str, Any] | None:
    """What the last evaluation with a study left."""
    found = [read_json(path, "an evaluation") for path in sorted((run / "eval").glob("*.json"))]
    return next((one for one in reversed(found) if one.get("study")), None)
