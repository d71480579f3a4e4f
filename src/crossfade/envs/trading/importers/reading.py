"""Files of any of the formats as tables of rows."""

import csv
import hashlib
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ....errors import DataError, UsageError
from ..contracts import CONTRACTS
from . import formats, stamps, symbols
from .columns import Columns, decimal_mark, read_columns
from .layout import Layout, layout
from .opening import DAMAGED, Text, texts
from .options import Options
from .placing import dates, to_utc
from .table import Table, refuse

PEEK = 1000  # rows by which a format is known


class Read(NamedTuple):
    """One file's rows, and what is said of it in the report."""

    table: Table
    source: str
    zone: str
    sha256: str
    stamp: str = "start"
    partial: int = 0  # rows left out because their bar began before the file
    cut: int = 0  # rows left out because they may be cut off
    called: tuple[str, ...] = ()  # contracts in the name of the file
    assumed: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def read_file(path: Path, contract: str, options: Options) -> list[Read]:
    """The tables in a file; a zip has several."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file.")
    try:
        return [_read(text, contract, options, digest(path)) for text in texts(path)]
    except PermissionError as error:
        raise UsageError(f"{path}: it cannot be read: {error.strerror}.") from None
    except (*DAMAGED, csv.Error, OSError) as error:
        raise DataError(f"{path}: expected text, plain or packed, got a damaged file ({error}). Get it anew.") from None


def digest(path: Path) -> str:
    """What tells whether a file is still the same."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read(text: Text, contract: str, options: Options, sha256: str) -> Read:
    name, first = text.name, list(islice(text.lines, PEEK))
    if not any(line.strip() for line in first):
        refuse(name, 1, "the file is empty", "Expected bars, one per row.")
    found = layout(name, first, options.source)
    form = formats.FORMATS[found.source]
    lines = _Ended(chain(first, text.lines))
    columns = read_columns(name, lines, found, decimal_mark(name, first, found, options.decimal))
    symbol, named = _symbol(name, found, contract, options, columns.symbol)
    cut = int(not lines.ended and options.last_row == "drop" and found.width - 1 in found.used)
    read = finish(name, columns._replace(symbol=symbol), form, found.source, options, int(form.first_is_partial), cut)
    left_out = (f"left out of the zip: {', '.join(text.left_out)}",) if text.left_out else ()
    return read._replace(
        sha256=sha256,
        called=tuple(dict.fromkeys(root for root, _ in _called(name, contract))),
        assumed=(*read.assumed, *named),
        warnings=(*read.warnings, *left_out),
    )


def finish(
    name: str, columns: Columns, form: formats.Format, source: str, options: Options, partial: int = 0, cut: int = 0
) -> Read:
    """Columns as a table whose times are those of the start of bars in UTC, without partial and cut-off rows."""
    date, ordered = dates(name, columns, options.dates, form)
    time, zone, placed = to_utc(name, columns, date, options.zone, form, source)
    table = Table(
        names=(name,),
        file=np.zeros(len(time), np.int32),
        line=columns.line,
        time=time,
        price=_points(columns.price),
        volume=columns.volume[:, np.argmax((columns.volume != 0).any(0))],
        symbol=columns.symbol,
        instrument=columns.instrument,
    )
    if len(table) <= partial + cut:
        why = "partial as the first one of an export is" if partial else "without an end of line: it may be cut off"
        table.refuse(0, f"it is the only bar, and {why}", "Export more bars, or tell --last-row keep.")
    stamped = stamps.to_start(table, options.stamp, form.stamp, source)
    warnings = list(stamped.warnings)
    if cut:
        warnings.append(f"row {table.line[-1]} has no end of line and may be cut off: left out (see --last-row)")
    return Read(
        table=stamped.table.where(np.arange(partial, len(table) - cut)),
        source=source,
        zone=zone,
        sha256="",
        stamp=stamped.stamp,
        partial=partial,
        cut=cut,
        assumed=(*ordered, *placed, *stamped.assumed),
        warnings=tuple(warnings),
    )


class _Ended:
    """Lines, and whether the last one that was read is ended."""

    def __init__(self, lines: Iterator[str]):
        self.lines, self.ended = lines, True

    def __iter__(self) -> "_Ended":
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.ended = line.endswith("\n")
        return line


def _symbol(
    name: str, found: Layout, contract: str, options: Options, column: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """The symbols of the rows: of their column, else the ticker of the header, else the month in the file's name."""
    ticker, row = found.ticker
    codes = options.contract(contract).months
    if ticker:
        if symbols.read(ticker, contract, codes).kind == "foreign":
            reason = f"the header says {ticker!r}, which is no {contract}"
            refuse(name, row, reason, "Name the right --contract, or get the right file.")
        return np.full(len(column), ticker), []
    months = [each for _, each in _called(name, contract) if symbols.read(each, contract, codes).kind == "month"]
    if found.symbol is None and found.instrument is None and len(months) == 1:
        return np.full(len(column), months[0]), [f"all rows are of {months[0]}, by the name of the file"]
    return column, []


def _called(name: str, contract: str) -> list[tuple[str, str]]:
    """Contracts in the name of a file, or else in that of the zip that it lies in."""
    outer, _, inner = name.rpartition(".zip:")
    for each in (inner, outer):
        if found := symbols.in_name(Path(each).name, {*CONTRACTS, contract}):
            return found
    return []


def _points(price: np.ndarray) -> np.ndarray:
    """Prices in points; one source writes them in billionths too, the largest integer standing for none."""
    if np.median(np.abs(np.nan_to_num(price))) < 1e8:
        return price
    return np.where(price >= 2.0**63 - 1, np.nan, price * 1e-9)
