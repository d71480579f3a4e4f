"""Bars from the files that users have: seven formats, each with its traps, and a report of everything that was done.

    imported = importers.read(["glbx-mdp3.zip"], "ES")
    print(imported.report.text())
    store.save(Path("bars"), "ES", imported)

A file that cannot be trusted is refused with the row and the reason. Nothing is repaired in silence.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from ....errors import UsageError
from ..bars import Bars
from ..contracts import contract as contract_of
from . import checks, months
from .checks import OffGrid
from .formats import Source
from .reading import Read, read_file
from .report import File, Report, gaps, moment
from .table import join

Doubtful = Literal["refuse", "warn"]
__all__ = ["Doubtful", "Imported", "OffGrid", "Report", "Source", "combine", "read"]


class Imported(NamedTuple):
    """Bars of one contract, and how they came about."""

    bars: Bars
    report: Report


def read(
    paths: str | Path | Sequence[str | Path],
    contract: str,
    source: Source | None = None,
    zone: str | None = None,
    off_grid: OffGrid = "refuse",
    doubtful: Doubtful = "refuse",
) -> Imported:
    """The bars of `contract` in one file or several: plain, .gz, .zip or .parquet.

    The source is recognised by header and content unless it is named. `zone` is the clock of times that do not name
    one. Prices between ticks are refused, or rounded and counted. Bars that look like two contracts or like those of
    another clock are refused, or kept with a warning: a crash is as wild as a mixture.
    """
    paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not paths:
        raise UsageError("expected at least one file, got none.")
    contract_of(contract)
    reads = [found for path in paths for found in read_file(Path(path), source, zone)]
    return combine(reads, contract, off_grid, doubtful)


def combine(
    reads: Sequence[Read], contract: str, off_grid: OffGrid = "refuse", doubtful: Doubtful = "refuse"
) -> Imported:
    """One series of bars out of what was read, every check passed."""
    for found in reads:
        checks.order(found.table)
    whole = join([found.table for found in reads])
    outright, spreads = months.without_spreads(whole, contract)  # these alone may have prices below 0
    checks.rows(outright)
    chosen = months.choose(outright)
    table, duplicates = checks.without_duplicates(chosen.table)
    ticks, rounded = checks.in_ticks(table, contract_of(contract).tick, off_grid)
    found = checks.minutes(table, ticks)
    zones = " and ".join(sorted({each.zone for each in reads}))
    doubts: list[str] = []

    def doubt(row: int, reason: str, advice: str) -> None:
        if doubtful == "refuse":
            table.refuse(row, reason, f"{advice} If it is right as it is: --doubtful warn.")
        doubts.append(f"row {table.line[row]}: {reason}")

    busiest, unchecked = checks.clock(found, table, contract, zones, doubt)
    identity = checks.identity(found, doubt)
    warnings = doubts + unchecked
    if np.isnan(identity.autocorrelation):
        warnings.append("whether two contracts are mixed is not checked: too few bars")
    if rounded:
        warnings.append(f"{rounded} rows had prices between ticks, as adjusted series do: fills are approximate")
    if not found.bars.volume.any():
        warnings.append("volume is 0 throughout: the volume feature says nothing")
    if chosen.rolls:
        warnings.append(f"prices are not adjusted: {len(chosen.rolls)} rolls are jumps between sessions")
    bars = found.bars
    report = Report(
        contract=contract,
        source=" and ".join(sorted({each.source for each in reads})),
        zone=zones,
        files=[File(each.table.names[0], len(each.table), each.sha256) for each in reads],
        rows=len(whole),
        bars=len(bars.stamp),
        first=moment(int(bars.stamp[0])),
        last=moment(int(bars.stamp[-1])),
        partial=sum(each.partial for each in reads),
        spreads=spreads,
        other_months=chosen.other_months,
        duplicates=duplicates,
        rounded=rounded,
        rolls=chosen.rolls,
        path_known=found.path_known,
        busiest=busiest,
        autocorrelation=_or_none(identity.autocorrelation),
        atr_share=_or_none(identity.atr_share),
        warnings=warnings,
        **gaps(bars),
    )
    return Imported(bars, report)


def _or_none(x: float) -> float | None:
    return None if np.isnan(x) else x
