"""What a sweep found: one record, ready for JSON; a table for the terminal; a page with curves."""

import math
import statistics
from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..config import to_yaml
from ..registry import Measure, System
from ..run.page import code, figure, show as in_words, table
from ..run.provenance import session
from ..run.report import Section, write_report


def record(
    system: System, base: Any, over: Mapping[str, Sequence[str]], configs: Sequence[Any], history: Mapping[str, Any]
) -> dict[str, Any]:
    """Settings, curves and last figures of every member, the best first, by the first headline figure they have."""
    members = []
    for i, config in enumerate(configs):
        curves = {key: _curve(history["rows"], f"{i}/{key}") for key in _labels(system)}
        curves = {key: curve for key, curve in curves.items() if curve["step"]}
        last = {key: curve["value"][-1] for key, curve in curves.items()}
        members.append({"settings": {key: attrgetter(key)(config) for key in over}, "last": last, "curves": curves})
    return {
        "system": system.name,
        "over": {key: list(values) for key, values in over.items()},
        "step": history["step"],
        "steps": base.steps,
        "iterations_per_second": _finite(history.get("time/its", math.nan)),
        "compile_seconds": _finite(history.get("time/compile", math.nan)),
        "members": sorted(members, key=lambda member: _rank(system, member)),
        "config": yaml.safe_load(to_yaml(base)),
        "session": session(),
    }


def show(system: System, found: Mapping[str, Any]) -> None:
    """The table on the terminal."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    head, *rows = _rows(system, found)
    printed = Table()
    for name in head:
        printed.add_column(name, justify="right")
    for row in rows:
        printed.add_row(*map(in_words, row))
    console.print(printed)
    console.print(_summary(found), soft_wrap=True)


def write_page(path: Path, system: System, found: Mapping[str, Any]) -> Path:
    """Results, curves (members that differ in their seed alone as mean and band) and settings."""
    from ..run import plots

    sections = [Section("Results", [table(*_split(_rows(system, found)), "The last figures of each, best first.")])]
    if grouped := _over_seeds(system, found):
        sections.append(Section("Over seeds", [table(*_split(grouped), "Mean, least and largest over the seeds.")]))
    for measure in system.headline:
        key, name = measure.name, measure.label
        lines = [
            plots.Curve(_label(member), np.array(curve["step"], float), np.array(curve["value"], float))
            for member in found["members"]
            if (curve := member["curves"].get(key)) and None not in curve["value"]
        ]
        if lines:
            picture = plots.curves(lines, xlabel="steps", ylabel=name, log=measure.log)
            sections.append(Section(name, [figure(plots.to_svg(picture), f"{key} over steps")]))
    sections.append(Section("Settings that all share", [code(yaml.safe_dump(found["config"], sort_keys=False))]))
    over = ", ".join(f"{key} {', '.join(values)}" for key, values in found["over"].items())
    return write_report(path, f"{found['system']}: a sweep", sections, f"{over}. {_summary(found)}")


def _rows(system: System, found: Mapping[str, Any]) -> list[list[Any]]:
    """Names of the columns, then a row for each member."""
    members = found["members"]
    labels = _labels(system)
    keys = [key for key in labels if key in members[0]["last"]]
    head = [*found["over"], *(labels[key] for key in keys)]
    return [head, *([*member["settings"].values(), *(member["last"][key] for key in keys)] for member in members)]


def _over_seeds(system: System, found: Mapping[str, Any]) -> list[list[Any]]:
    """The same over groups of members that differ in their seed alone; nothing where that says nothing new."""
    if "seed" not in found["over"] or len(found["over"]["seed"]) == 1:
        return []
    measure = _judged_by(system, found["members"][0])
    key, sign = measure.name, _sign(measure)
    groups: dict[str, list[Any]] = {}
    for member in found["members"]:
        groups.setdefault(_label(member), []).append(member["last"][key])
    rows = []
    for label, values in groups.items():
        known = [value for value in values if value is not None]
        figures = [statistics.fmean(known), min(known), max(known)] if known else [None] * 3
        rows.append([label, len(values), *figures])
    rows.sort(key=lambda row: math.inf if row[2] is None else sign * row[2])
    return [["settings", "seeds", *(f"{_labels(system)[key]}, {word}" for word in ("mean", "least", "largest"))], *rows]


def _summary(found: Mapping[str, Any]) -> str:
    n, rate, compiling = len(found["members"]), found["iterations_per_second"], found["compile_seconds"]
    stopped = "" if found["step"] == found["steps"] else f", stopped before {found['steps']}"
    speed = "" if rate is None else f", {rate:.4g} it/s of each and {n * rate:.4g} of all together"
    return f"{n} members, {found['step']} iterations{stopped}{speed}" + (
        "" if compiling is None else f", compiled in {compiling:.1f} s"
    )


def _curve(rows: Sequence[tuple[int, Mapping[str, Any]]], key: str) -> dict[str, list[Any]]:
    """A figure of one member over the steps at which it was logged; what is not finite becomes None."""
    known = [(step, float(row[key])) for step, row in rows if key in row]
    return {"step": [step for step, _ in known], "value": [_finite(value) for _, value in known]}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _labels(system: System) -> dict[str, str]:
    return {measure.name: measure.label for measure in system.headline}


def _judged_by(system: System, member: Mapping[str, Any]) -> Measure:
    """The first headline figure with a good direction that a member has."""
    return next(m for m in system.headline if m.better and m.name in member["last"])


def _rank(system: System, member: Mapping[str, Any]) -> float:
    """Least first is best first."""
    measure = _judged_by(system, member)
    value = member["last"][measure.name]
    return math.inf if value is None else _sign(measure) * value


def _sign(measure: Measure) -> int:
    """Of the figure that is least for the best."""
    return -1 if measure.better == "higher" else 1


def _label(member: Mapping[str, Any]) -> str:
    words = (f"{key}={in_words(value)}" for key, value in member["settings"].items() if key != "seed")
    return " ".join(words) or "all seeds"


def _split(rows: list[list[Any]]) -> tuple[list[Any], list[list[Any]]]:
    return rows[0], rows[1:]
