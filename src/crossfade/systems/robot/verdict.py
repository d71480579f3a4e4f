"""What `crossfade eval` says of a policy: how it walks, and which pushes it bears."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...run import RunDir
from ...run.evaluation import Evaluation, Judged
from .config import RobotConfig
from .evaluation import RobotEffort

HEAD = ("push, N s", "stood", "metres")
SAYS = "Pushed every 2 s in a random direction: the share of episodes without a fall, and how far they went."


def judge(run: RunDir, config: RobotConfig, found: Evaluation, effort: RobotEffort) -> Judged:
    """How it walks in one sentence, then the pushes."""
    study = found.study
    table = aligned([HEAD, *rows(study["pushes"])])
    return Judged({"study": study}, [headline(study), "", *table, "", SAYS])


def headline(study: Mapping[str, Any]) -> str:
    """The figures in one sentence."""
    of = study["figures"]
    return (
        f"Under {study['physics']}, {study['episodes']} episodes: {of['distance']:.2f} m in {of['seconds']:.1f} s, "
        f"{of['speed']:.2f} m/s (off by {of['speed_error']:.2f}), falls in {of['falls']:.0%}, mean torque "
        f"{of['torque']:.2f} N m, return {of['return']:.4g}."
    )


def rows(pushes: Sequence[Mapping[str, float]]) -> list[list[str]]:
    """A row for each size of push."""
    return [[f"{row['impulse']:g}", f"{row['stood']:.0%}", f"{row['distance']:.2f}"] for row in pushes]


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table for the terminal."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
