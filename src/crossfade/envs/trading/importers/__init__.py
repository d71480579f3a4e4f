"""Bars from the files that users have: fourteen formats, each with its traps, and a report of everything that was done.

    imported = importers.read(["glbx-mdp3.zip"], "ES")
    print(imported.report.text())
    store.save(Path("bars"), "ES", imported)
    imported = importers.import_bars(frame, "ES", zone="America/Chicago")

A file that cannot be trusted is refused with the row and the reason. Nothing is repaired in silence.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....errors import UsageError
from ..bars import Bars
from ..contracts import Contract
from . import checks, frames, levels, months
from .options import Doubts, Options
from .reading import Read, read_file
from .report import File, Report, gaps, moment
from .table import Table, join

__all__ = ["Imported", "Options", "Report", "combine", "import_bars", "read"]


class Imported(NamedTuple):
    """Bars of one contract, and how they came about."""

    bars: Bars
    report: Report
    contract: Contract
    origin: Table  # the row that each bar begins with


def read(paths: str | Path | Sequence[str | Path], contract: str, **options: Any) -> Imported:
    """The bars of `contract` in one file or several: plain, .gz, .zip or .parquet. For `options` see `Options`."""
    paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not paths:
        raise UsageError("expected at least one file, got none.")
    told = Options(**options)
    told.contract(contract)
    return combine([found for path in paths for found in read_file(Path(path), contract, told)], contract, told)


def import_bars(table: Any, contract: str, **options: Any) -> Imported:
    """The bars of `contract` in a DataFrame or in arrays by name. For `options` see `Options`.

    Times stand in a column (`datetime`, `time`, `date`, `timestamp`) or in the index: with a zone, or without one and
    `zone` told, or as seconds since 1970. The other columns are open, high, low, close, volume, and `symbol` if there
    are several months. Every check of files is made; rows are counted from 0.
    """
    told = Options(**options)
    told.contract(contract)
    return combine([frames.read_table(table, told)], contract, told)


def combine(reads: Sequence[Read], contract: str, options: Options | None = None) -> Imported:
    """One series of bars out of what was read, every check passed."""
    options = options or Options()
    spec = options.contract(contract)
    doubts = Doubts(options.doubtful)
    for found in reads:
        checks.order(found.table)
    whole = join([found.table for found in reads])
    outright, spreads = months.without_spreads(whole, contract, spec.months)  # these alone may have prices below 0
    checks.rows(outright, options.negative)
    chosen = months.choose(outright, contract, spec, doubts)
    table, duplicates = checks.without_duplicates(chosen.table)
    ticks, rounded = checks.in_ticks(table, spec.tick, options.off_grid)
    found = checks.minutes(table, ticks, spec.session.zone)
    zones = " and ".join(sorted({each.zone for each in reads}))
    _names(reads, contract, doubts)
    checks.jumps(found, table, spec.jump, doubts)
    for bar, reason in levels.misplaced(found.bars, contract, spec):
        doubts.doubt(table, int(found.row[bar]), reason, "Is the --contract right?")
    busiest, unchecked = checks.clock(found, table, contract, spec.session, zones, doubts)
    identity = checks.identity(found, table, spec.session, doubts)
    warnings = doubts.told + unchecked + [warning for each in reads for warning in each.warnings]
    if np.isnan(identity.autocorrelation):
        warnings.append("whether two contracts are mixed is not checked: too few bars")
    if rounded:
        warnings.append(f"{rounded} rows had prices between ticks, as adjusted series do: fills are approximate")
    if below := int((found.bars.low <= 0).sum()):
        warnings.append(f"{below} bars have prices at or below 0, as --negative allows")
    if parts := int((table.volume % 1 != 0).sum()):
        warnings.append(f"{parts} rows have volumes that are not whole: rounded")
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
        stamp=" and ".join(sorted({each.stamp for each in reads})),
        assumed=list(dict.fromkeys(each for found in reads for each in found.assumed)),
        partial=sum(each.partial for each in reads),
        cut=sum(each.cut for each in reads),
        spreads=spreads,
        other_months=chosen.other_months,
        duplicates=duplicates,
        rounded=rounded,
        negative=below,
        clock=spec.session.place,
        rolls=chosen.rolls,
        path_known=found.path_known,
        busiest=busiest,
        autocorrelation=_or_none(identity.autocorrelation),
        atr_share=_or_none(identity.atr_share),
        warnings=warnings,
        **gaps(bars, spec.session),
    )
    return Imported(bars, report, spec, table.where(found.row))


def _names(reads: Sequence[Read], contract: str, doubts: Doubts) -> None:
    """Doubts files that are called after other contracts."""
    for each in reads:
        if each.called and contract not in each.called:
            reason = f"the file is called after {' and '.join(each.called)}, not after {contract}"
            doubts.doubt(each.table, 0, reason, "Is the --contract right?")


def _or_none(x: float) -> float | None:
    return None if np.isnan(x) else x
