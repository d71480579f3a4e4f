"""The seven formats in which bars reach users: what they look like, and what has to be known to read them."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

from ....errors import UsageError, nearest
from .clock import NEW_YORK
from .options import Source, Stamp
from .table import refuse

SIDES = ("open", "high", "low", "close")


@dataclass(frozen=True)
class Format:
    """How one source writes bars."""

    time: tuple[str, ...] = ("time",)
    """Columns of the time, one after the other."""
    others: tuple[str, ...] = ()
    """Other names that a single column of the time may have."""
    volume: tuple[str, ...] = ("volume",)
    """Columns of the volume; the first that is not 0 throughout counts."""
    header: bool = True
    delimiter: str = ","
    zone: str | None = None
    """The clock of times that do not name one; none: the user must tell."""
    stamp: Stamp | None = "start"
    """Whether times are those of the start or of the end of a bar."""
    first_is_partial: bool = False
    """The first bar began before the export did."""


FORMATS: dict[Source, Format] = {
    "databento": Format(("ts_event",), zone="UTC"),
    "firstrate": Format(header=False, zone=NEW_YORK),
    "tradingview": Format(first_is_partial=True),
    "yfinance": Format(("datetime",), others=("date", "timestamp")),
    "ninjatrader": Format(header=False, delimiter=";", stamp="end"),
    "histdata": Format(header=False, delimiter=";", zone="UTC-5"),
    "metatrader": Format(("date", "time"), volume=("vol", "tickvol"), delimiter="\t"),
}
_COMPACT, _ISO = re.compile(r"\d{8} \d{6};"), re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?,")


class Layout(NamedTuple):
    """Where the columns of one file are."""

    source: Source
    delimiter: str
    rows: int  # of the header
    width: int
    time: tuple[int, ...]
    sides: tuple[int, ...]
    volume: tuple[int, ...]
    symbol: int | None
    instrument: int | None
    ticker: tuple[str, int] = ("", 0)  # that the header names, and the row in which it does

    @property
    def used(self) -> set[int | None]:
        """Columns that are read."""
        return {*self.time, *self.sides, *self.volume, self.symbol, self.instrument}


def named(source: str | None) -> Source | None:
    """The source of that name, or an error with the nearest one."""
    if source is not None and source not in FORMATS:
        raise UsageError(f"unknown source {source!r}.{nearest(source, FORMATS)} Known: {', '.join(FORMATS)}.")
    return source


def layout(name: str, lines: Sequence[str], source: Source | None) -> Layout:
    """The layout of a file by its first lines, of the given source or of the one they look like."""
    source = source or _detect(name, lines)
    form = FORMATS[source]
    delimiter = form.delimiter if form.delimiter in lines[0] else ","
    if not form.header:
        width = lines[0].count(delimiter) + 1
        if width < 6:
            refuse(name, 1, f"expected time, open, high, low, close, volume, got {width} columns", _tell(source))
        return Layout(source, delimiter, 0, width, (0,), (1, 2, 3, 4), (5,), None, None)
    rows, tickers = 1, _tickers(lines[0], delimiter)
    cells = _words(lines[0], delimiter)
    if cells[0] == "price" and source == "yfinance":  # one row of what, one of tickers, one of the index
        rows = 3
        tickers = {cell.strip() for cell in lines[1].split(delimiter)[1:]} if len(lines) > 2 else set()
        cells[0] = "datetime"
    found = {cell: i for i, cell in reversed(list(enumerate(cells)))}
    names = list(form.time)
    if len(names) == 1 and names[0] not in found:
        names = [other for other in form.others if other in found][:1] or names
    volumes = [v for v in form.volume if v in found]
    if missing := [c for c in (*names, *SIDES) if c not in found] + ([] if volumes else [form.volume[0]]):
        refuse(name, 1, f"no column {', '.join(missing)}; there are {', '.join(cells)}", _tell(source))
    at = lambda wanted: tuple(found[w] for w in wanted)
    if len(tickers) > 1:
        row, several = min(rows, 2), ", ".join(sorted(tickers))
        refuse(name, row, f"several tickers: {several}", "Download one ticker per file.")
    more = found.get("symbol"), found.get("instrument_id"), (min(tickers, default=""), min(rows, 2))
    return Layout(source, delimiter, rows, len(cells), at(names), at(SIDES), at(volumes), *more)


def _detect(name: str, lines: Sequence[str]) -> Source:
    """The source whose files begin like this."""
    first = lines[0]
    if _COMPACT.match(first):  # two sources write alike; one of them knows no volume
        volumes = {line.rstrip().rsplit(";", 1)[-1] for line in lines if line.strip()}
        return "histdata" if volumes <= {"0", "0.0"} else "ninjatrader"
    if _ISO.match(first):
        return "firstrate"
    cells = {word for delimiter in ",\t" for word in _words(first, delimiter)}
    if "ts_event" in cells:
        return "databento"
    if {"date", "time"} <= cells:
        return "metatrader"
    if "time" in cells:
        return "tradingview"
    if cells & {"date", "datetime", "timestamp", "price"}:
        return "yfinance"
    known = ", ".join(get_args(Source))
    refuse(name, 1, f"expected the beginning of a file of {known}, got {first[:60]!r}", "Name it with --source.")


def _words(line: str, delimiter: str) -> list[str]:
    """The names of columns: `<OPEN>`, `Open` and `('Open', 'ES=F')` are `open`."""
    cells = [cell.strip().strip("<>").strip() for cell in next(csv.reader([line], delimiter=delimiter))]
    tupled = (re.match(r"\('([^']*)'", cell) for cell in cells)
    return [(found[1] if found else cell).lower() for cell, found in zip(cells, tupled, strict=True)]


def _tickers(line: str, delimiter: str) -> set[str]:
    """The tickers of a header of tuples: `('Open', 'ES=F')`."""
    cells = next(csv.reader([line], delimiter=delimiter))
    return {found[1] for cell in cells if (found := re.match(r"\('[^']*', '([^']+)'", cell))}


def _tell(source: Source) -> str:
    return f"Read as a file of {source}; if it is another's, name that with --source."
