"""Files of any of the formats as tables of rows."""

import csv
import hashlib
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from ....errors import DataError, UsageError
from ..contracts import CONTRACTS
from . import clock, formats, stamps, symbols
from .layout import Layout, layout
from .numbers import NotOne, decimal, numbers
from .opening import DAMAGED, Text, texts
from .options import Dates, Decimal, Options
from .table import Table, refuse
from .times import Times, Unreadable, days

BLOCK = 10_000  # rows that are held as text at a time
PEEK = 1000  # rows by which a format is known
MEND = "Mend or leave out the row."


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


class Columns(NamedTuple):
    """Columns of a file as numbers, times apart."""

    line: np.ndarray
    date: np.ndarray  # (rows, 3) as written
    second: np.ndarray
    offset: np.ndarray
    price: np.ndarray  # (rows, 4)
    volume: np.ndarray  # (rows, alternatives)
    symbol: np.ndarray
    instrument: np.ndarray
    times: Times  # what their form says

    def refuse(self, name: str, row: int, reason: str, advice: str = MEND) -> NoReturn:
        refuse(name, int(self.line[row]), reason, advice)


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
    columns = _columns(name, lines, found, _decimal(name, first, found, options.decimal))
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
    date, ordered = _dates(name, columns, options.dates, form)
    time, zone, placed = _utc(name, columns, date, options.zone, form, source)
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


def _columns(name: str, lines: Iterator[str], found: Layout, mark: Decimal) -> Columns:
    """The rows as arrays, some thousand at a time: text takes ten times the room."""
    rows = csv.reader(lines, delimiter=found.delimiter, skipinitialspace=True)
    line, times, blocks = len(list(islice(rows, found.rows))), None, []
    while block := list(islice(rows, BLOCK)):
        at = line + 1 + np.flatnonzero([any(row) for row in block])  # empty rows are none
        if rows.line_num != line + len(block):  # a row of several lines, or all that follow
            row = next(i for i, row in enumerate(block) if any("\n" in cell for cell in row))
            refuse(name, line + 1 + row, "a quote that is not closed in its line", MEND)
        line += len(block)
        block = [row for row in block if any(row)]
        if not block:
            continue
        block = [row if len(row) <= found.width or any(row[found.width :]) else row[: found.width] for row in block]
        if not min(map(len, block)) == max(map(len, block)) == found.width:
            row, width = next((i, len(row)) for i, row in enumerate(block) if len(row) != found.width)
            advice = "Is the file cut off?" if width < found.width else "Are there separators within numbers?"
            refuse(name, int(at[row]), f"expected {found.width} columns, got {width}", advice)
        texts = list(zip(*block, strict=True))
        written = [" ".join(map(str.strip, cells)) for cells in zip(*(texts[i] for i in found.time), strict=True)]
        try:
            times = times or Times(written[0])
            parsed = times.parse(written)
        except Unreadable as error:
            wrong = written[error.at]
            why = f"; {error.reason}" if error.reason else ""
            hint = "" if times is None or wrong == times.like else f" like {times.like!r}"
            refuse(name, int(at[error.at]), f"expected a time{hint}, got {wrong!r}{why}", MEND)
        number = lambda i, texts=texts, at=at: _numbers(name, texts[i], at, mark)
        blank = np.full(len(at), "")
        text = lambda i, texts=texts, blank=blank: blank if i is None else np.array([t.strip() for t in texts[i]])
        price = np.stack([number(i) for i in found.sides], -1)
        volume = np.stack([np.sum([number(i) for i in group], 0) for group in found.volume], -1)
        blocks.append((at, *parsed, price, volume, text(found.symbol), text(found.instrument)))
    if times is None:
        refuse(name, found.rows + 1, "the file ends after its header", "Expected bars, one per row.")
    return Columns(*(np.concatenate(column) for column in zip(*blocks, strict=True)), times=times)


def _numbers(name: str, texts: tuple[str, ...], lines: np.ndarray, mark: Decimal) -> np.ndarray:
    try:
        return numbers(texts, mark)
    except NotOne as error:
        refuse(name, int(lines[error.at]), f"expected a number, got {texts[error.at]!r}", MEND)


def _decimal(name: str, lines: list[str], found: Layout, told: Decimal | None) -> Decimal:
    """What stands before decimals, as told or by the first rows."""
    if told is not None:
        return told
    rows = csv.reader(lines[found.rows :], delimiter=found.delimiter, skipinitialspace=True)
    whole = [(found.rows + i, row) for i, row in enumerate(rows, 1) if len(row) >= found.width]
    volumes = sorted({i for group in found.volume for i in group})
    mark, at, shown = decimal(*([[row[i] for i in which] for _, row in whole] for which in (found.sides, volumes)))
    if mark is None:
        reason = f"in {shown!r} a comma or point may stand before decimals or before thousands"
        refuse(name, whole[at][0], reason, "Tell what stands before decimals: --decimal point or --decimal comma.")
    return mark


def _dates(name: str, columns: Columns, told: Dates | None, form: formats.Format) -> tuple[np.ndarray, list[str]]:
    """Seconds of the dates, and what was assumed of their order."""
    times, (a, b) = columns.times, columns.date.T[:2]
    order, why, written = told, "", times.like
    if times.written == "ymd":
        if told not in (None, "ymd"):
            columns.refuse(name, 0, f"{written!r} begins with the year", f"Leave out --dates {told}.")
        order = "ymd"
    elif order is None and times.written == "open":
        first, second = a > 12, b > 12
        if first.any() and second.any():
            row = int(np.flatnonzero(first if second.argmax() < first.argmax() else second)[0])
            columns.refuse(name, row, "here the other number is the month than in rows before")
        if first.any() or second.any():
            order, why = ("dmy", "a first") if first.any() else ("mdy", "a second")
            row = int((first | second).argmax())
            why = f"row {columns.line[row]} has {why} number above 12"
        elif form.dates is not None:
            order, why = form.dates, "as this source writes them"
        elif times.dots:
            order, why = "dmy", "as dates with points are"
    if order is None:
        reason = f"whether day, month or year comes first in {written!r} is left open by all rows"
        columns.refuse(name, 0, reason, "Tell the order: --dates mdy, --dates dmy or --dates ymd.")
    day, exists = days(columns.date, order)
    if len(odd := np.flatnonzero(~exists)):
        y, m, d = (int(columns.date[odd[0], order.index(part)]) for part in "ymd")
        reason = f"expected a time like {written!r}, got day {d} of month {m} in {y}"
        columns.refuse(name, int(odd[0]), reason)
    return day * 86400, [f"dates are {order}, {why}"] if why else []


def _points(price: np.ndarray) -> np.ndarray:
    """Prices in points; one source writes them in billionths too, the largest integer standing for none."""
    if np.median(np.abs(np.nan_to_num(price))) < 1e8:
        return price
    return np.where(price >= 2.0**63 - 1, np.nan, price * 1e-9)


def _utc(
    name: str, columns: Columns, date: np.ndarray, told: str | None, form: formats.Format, source: str
) -> tuple[np.ndarray, str, list[str]]:
    """Times in UTC by the zone that the texts name, that the user has told or that is usual for the source."""
    times, shown = columns.times, date + columns.second
    if (times.aware or times.zone) and told is not None:
        columns.refuse(name, 0, "the times name their own zone", f"Leave out --zone {told}.")
    if times.aware:
        return shown - columns.offset, "the zone they name", []
    if times.short and told is None:
        reason = f"{times.short!r} behind the times is no zone: some write it all year, some by season"
        columns.refuse(name, 0, reason, "Tell the clock with --zone, e.g. --zone America/New_York.")
    zone = told or times.zone or form.zone
    if zone is None:
        advice = "Tell the clock they were written by with --zone, e.g. --zone America/Chicago."
        columns.refuse(name, 0, "the times name no zone", advice)
    time, unclear = _clock(name, columns, zone, times.zone).to_utc(shown)
    if len(rows := np.flatnonzero(unclear)):
        columns.refuse(
            name,
            int(rows[0]),
            f"the clock of {zone} never showed this time, or twice: it is the hour of its change, on a weekend",
            "No bar can be from then, so the zone is wrong: tell the right one with --zone.",
        )
    assumed = [] if told or times.zone else [f"times are by {zone}, as {source} writes them"]
    return time, zone, assumed


def _clock(name: str, columns: Columns, zone: str, named: str | None) -> clock.Clock:
    try:
        return clock.Clock(zone)
    except UsageError as error:
        if named is None:
            raise
        columns.refuse(name, 0, f"the times name a zone that is not known: {error}", "Take it out, and tell --zone.")
