"""What `crossfade eval` says of a policy: how it walks, and which pushes it bears."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...algos.amp.health import Distance, feature_report
from ...run import RunDir
from ...run.evaluation import Evaluation, Judged
from .config import RobotConfig
from .evaluation import RobotEffort

HEAD = ("push, N s", "stood", "metres")
FEATURES = "Features that are farthest from the reference: Kolmogorov-Smirnov distance, and the means of both."
SAYS = "Pushed every 2 s in a random direction: the share of episodes without a fall, and how far they went."


def judge(run: RunDir, config: RobotConfig, found: Evaluation, effort: RobotEffort) -> Judged:
    """How it walks in one sentence, then the pushes, and what is farthest from the motion that is imitated."""
    study = found.study
    lines = [headline(study), "", *aligned([HEAD, *rows(study["pushes"])]), "", SAYS]
    if features := study.get("features"):
        report = feature_report([Distance(**row) for row in features])
        lines += ["", *report.splitlines(), "", FEATURES]
    if "episode.gif" in found.files:
        lines += ["", f"episode.gif, the episode of the median distance, drawn by {study['drawn_by']}"]
    return Judged({"study": study}, lines)


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
