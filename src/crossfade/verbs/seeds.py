"""Evaluations of runs that differ in their seed alone: each run, their mean, and how far seeds lie apart."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError
from ..registry import System
from ..run.groups import differences, flat, shown
from ..run.page import details, show, table

NOTE = "The spread is the standard deviation over seeds: what a run of another seed would differ by. "


class Evaluated(NamedTuple):
    """One run of several."""

    path: Path
    seed: int
    written: dict[str, Any]  # what its JSON file holds


class Spread(NamedTuple):
    """A metric over seeds; None where fewer than one, or for the deviation two, are known."""

    mean: float | None
    deviation: float | None
    low: float | None
    high: float | None


def check_repeats(paths: Sequence[Path], systems: Sequence[System], configs: Sequence[Any]) -> None:
    """Refuses runs that are not repeats of one another under other seeds."""
    if len(kinds := list(dict.fromkeys(system.name for system in systems))) > 1:
        raise UsageError(f"expected runs of one system, which differ in their seed alone, got {', '.join(kinds)}.")
    if apart := differences([flat(asdict(config)) for config in configs]):
        told = "; ".join(f"{name}: {', '.join(map(shown, values))}" for name, values in apart.items())
        raise UsageError(
            f"expected runs that differ in their seed alone, got other settings as well: {told}. Evaluate them one by "
            "one; `crossfade report` shows them side by side."
        )
    seeds = [config.seed for config in configs]
    if len(set(seeds)) < len(seeds):
        raise UsageError(f"expected runs of different seeds, got seeds {', '.join(map(str, seeds))}: give each once.")


def spreads(found: Sequence[Mapping[str, Any]]) -> dict[str, Spread]:
    """Mean, standard deviation and extremes of every metric, `eval/...`, over those evaluations that have it."""
    names = dict.fromkeys(name for one in found for name in one if name.startswith("eval/"))
    return {name: _spread([one.get(name) for one in found]) for name in names if not name.endswith("_se")}


def rows(found: Sequence[Evaluated], names: Sequence[str]) -> list[list[Any]]:
    """A row for each run, then mean and spread."""
    over = spreads([one.written for one in found])
    each = [[f"seed {one.seed}", *(one.written.get(name) for name in names)] for one in found]
    return [*each, ["mean", *(over[n].mean for n in names)], ["spread", *(over[n].deviation for n in names)]]


def chosen(system: System, found: Sequence[Evaluated]) -> list[str]:
    """The metrics by which the system's runs are compared; all where it names none."""
    known = list(spreads([one.written for one in found]))
    wanted = [name for name in (*(m.name for m in system.headline), system.score) if name in known]
    return list(dict.fromkeys(wanted)) or known


def lines(system: System, found: Sequence[Evaluated]) -> list[str]:
    """For the terminal."""
    names = chosen(system, found)
    cells = [["", *names], *([show(cell) for cell in row] for row in rows(found, names))]
    widths = [max(len(row[place]) for row in cells) for place in range(len(cells[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]).rstrip()
        for row in cells
    ]


def blocks(system: System, found: Sequence[Evaluated]) -> list[str]:
    """For a page: the metrics by which runs are compared, and folded away all of them."""
    names, every = chosen(system, found), list(spreads([one.written for one in found]))
    test_set = found[0].written["test_set"]
    note = NOTE + (f"Judged by: {test_set}." if test_set else "")
    more = [details("all metrics", [table(["", *every], rows(found, every))])] if len(every) > len(names) else []
    return [table(["", *names], rows(found, names), note), *more]


def _spread(values: Sequence[float | None]) -> Spread:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        return Spread(None, None, None, None)
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Spread(statistics.fmean(known), deviation, min(known), max(known))
