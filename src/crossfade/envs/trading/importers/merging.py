"""Bars of one contract from two imports as one series."""

from dataclasses import fields, replace
from typing import Any

import numpy as np

from ....errors import DataError
from ..bars import Bars
from ..contracts import Contract
from . import Imported, checks
from .months import Roll
from .report import File, Report, gaps, moment

COUNTED = ("rows", "partial", "cut", "spreads", "other_months", "duplicates", "rounded", "negative")
LISTED = ("assumed", "warnings")
JOINED = ("source", "zone", "stamp")


def merge(old: Bars, report: dict[str, Any], contract: Contract, new: Imported, path: str) -> Imported:
    """The bars of both; where they overlap they must be equal. Which extreme came first is taken from whom knows it."""
    if contract != new.contract:
        raise DataError(f"{path}: expected bars of the same contract, got one defined otherwise. Use another folder.")
    same, i, j = np.intersect1d(old.stamp, new.bars.stamp, assume_unique=True, return_indices=True)
    differ = [getattr(old, side)[i] != getattr(new.bars, side)[j] for side in Bars._fields[1:6]]
    if len(rows := np.flatnonzero(np.any(differ, 0))):
        bar = int(j[rows[0]])
        here, there = (_shown(bars, at, contract.tick) for bars, at in ((new.bars, bar), (old, int(i[rows[0]]))))
        when = f"{moment(int(same[rows[0]]))} {contract.session.place} time"
        new.origin.refuse(
            bar,
            f"at {when} it has {here}, while {path} has {there} ({len(rows)} of {len(same)} common bars differ)",
            "Keep one of them: --replace, or another folder by --to.",
        )
    if new.report.path_known and not report.get("path_known"):
        old = old.where(~np.isin(old.stamp, same))
        added = new.bars
    else:
        added = new.bars.where(~np.isin(new.bars.stamp, same))
    both = Bars(*(np.concatenate(columns) for columns in zip(old, added, strict=True)))
    order = np.argsort(both.stamp, kind="stable")
    bars = Bars(*(column[order] for column in both))
    meets = np.concatenate([[False], np.diff(order < len(old.stamp))])  # bars whose neighbour before is from the other
    if len(far := np.flatnonzero(meets & (checks.moves(bars) > contract.jump))):
        when = f"{moment(int(bars.stamp[far[0]]))} {contract.session.place} time"
        raise DataError(
            f"{path}: where both meet, at {when}, prices change by more than the {100 * contract.jump:.0f} % that the "
            "contract can. Are both of the same contract, and adjusted in the same way? Else use another folder."
        )
    return new._replace(bars=bars, report=_report(report, new.report, bars, contract))


def _report(old: dict[str, Any], new: Report, bars: Bars, contract: Contract) -> Report:
    """What both reports say; figures that judge the bars of one import are the new one's."""
    rolls = {Roll(**roll) for roll in old.get("rolls", [])} | set(new.rolls)
    files = dict.fromkeys([*(File(**file) for file in old.get("files", [])), *new.files])
    both = lambda name: dict.fromkeys([*old.get(name, "").split(" and "), *getattr(new, name).split(" and ")])
    known = {field.name for field in fields(Report)}
    changed = {
        **{name: int(old.get(name, 0)) + getattr(new, name) for name in COUNTED},
        **{name: list(dict.fromkeys([*old.get(name, []), *getattr(new, name)])) for name in LISTED},
        **{name: " and ".join(filter(None, both(name))) for name in JOINED},
        "files": list(files),
        "rolls": sorted(rolls),
        "path_known": bool(old.get("path_known")) and new.path_known,
        "bars": len(bars.stamp),
        "first": moment(int(bars.stamp[0])),
        "last": moment(int(bars.stamp[-1])),
        **gaps(bars, contract.session),
    }
    assert changed.keys() <= known
    return replace(new, **changed)


def _shown(bars: Bars, at: int, tick: float) -> str:
    sides = (getattr(bars, side)[at] * tick for side in ("open", "high", "low", "close"))
    return " ".join(f"{x:g}" for x in (*sides, bars.volume[at]))
