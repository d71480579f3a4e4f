"""Files of any of the formats, zipped or not, as tables of rows."""

import csv
import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ....errors import DataError, UsageError
from ..contracts import CONTRACTS
from . import clock, formats, stamps, symbols
from .options import Options
from .table import Table, refuse

BLOCK = 10_000  # rows that are held as text at a time
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
        return [_read(name, text, contract, options, digest(path)) for name, text in _texts(path)]
    except (UnicodeDecodeError, csv.Error, EOFError, zlib.error, zipfile.BadZipFile, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: expected text, plain or packed, got a damaged file ({error}). Get it anew.") from None


def digest(path: Path) -> str:
    """What tells whether a file is still the same."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _texts(path: Path) -> Iterator[tuple[str, io.TextIOBase]]:
    if path.suffix == ".parquet":
        yield str(path), _parquet(path)
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as bundle:
            members = [name for name in bundle.namelist() if Path(name).suffix in (".csv", ".txt")]
            if not members:
                names = ", ".join(bundle.namelist()[:5])
                raise DataError(
                    f"{path}: expected .csv or .txt files in the zip, got {names}. Unpack and convert them."
                )
            for name in members:
                with bundle.open(name) as file:
                    yield f"{path}:{name}", io.TextIOWrapper(file, "utf-8-sig")
    elif path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8-sig") as file:
            yield str(path), file  # pyright: ignore[reportReturnType]
    else:
        with open(path, encoding="utf-8-sig") as file:
            yield str(path), file


def _parquet(path: Path) -> io.StringIO:
    try:
        from pyarrow import csv as arrow_csv, parquet  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise DataError(
            f"{path}: parquet is read by pyarrow, which is not installed. Run `pip install pyarrow`, or save the file "
            "as CSV."
        ) from None
    sink = io.BytesIO()
    try:
        arrow_csv.write_csv(parquet.read_table(path), sink)
    except (ValueError, OSError) as error:  # as pyarrow's own errors are
        raise DataError(f"{path}: expected a parquet file, got a damaged one ({error}). Get it anew.") from None
    return io.StringIO(sink.getvalue().decode())


def _read(name: str, text: Any, contract: str, options: Options, sha256: str) -> Read:
    first = list(islice(text, PEEK))
    if not any(line.strip() for line in first):
        refuse(name, 1, "the file is empty", "Expected bars, one per row.")
    found = formats.layout(name, first, options.source)
    form = formats.FORMATS[found.source]
    lines = _Ended(chain(first, text))
    rows = csv.reader(lines, delimiter=found.delimiter)
    header = list(islice(rows, found.rows))
    blocks = list(_blocks(name, rows, found, len(header)))
    if not blocks:
        refuse(name, found.rows + 1, "the file ends after its header", "Expected bars, one per row.")
    columns = {key: np.concatenate([block[key] for block in blocks]) for key in blocks[0]}
    time, clock_name = _utc(name, columns, options.zone, form.zone)
    assumed = [f"times are by {clock_name}, as {found.source} writes them"] if clock_name == form.zone else []
    symbol, more = _symbol(name, found, contract, columns["symbol"])
    volume = columns["volume"]
    table = Table(
        names=(name,),
        file=np.zeros(len(time), np.int32),
        line=columns["line"],
        time=time,
        price=_points(columns["price"]),
        volume=volume[:, np.argmax((volume != 0).any(0))],
        symbol=symbol,
        instrument=columns["instrument"],
    )
    cut = int(not lines.ended and options.last_row == "drop" and found.width - 1 in found.used)
    partial = int(form.first_is_partial)
    if len(table) <= partial + cut:
        why = "partial as the first one of an export is" if partial else "without an end of line: it may be cut off"
        table.refuse(0, f"it is the only bar, and {why}", "Export more bars, or tell --last-row keep.")
    stamped = stamps.to_start(table, options.stamp, form.stamp, found.source)
    warnings = stamped.warnings
    if cut:
        warnings.append(f"row {table.line[-1]} has no end of line and may be cut off: left out (see --last-row)")
    return Read(
        table=stamped.table.where(np.arange(partial, len(table) - cut)),
        source=found.source,
        zone=clock_name,
        sha256=sha256,
        stamp=stamped.stamp,
        partial=partial,
        cut=cut,
        called=tuple(dict.fromkeys(root for root, _ in _called(name))),
        assumed=(*assumed, *more, *stamped.assumed),
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


def _symbol(name: str, found: formats.Layout, contract: str, column: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """The symbols of the rows: of their column, else the ticker of the header, else the month in the file's name."""
    ticker, row = found.ticker
    codes = CONTRACTS[contract].months
    if ticker:
        if symbols.read(ticker, contract, codes).kind == "foreign":
            reason = f"the header says {ticker!r}, which is no {contract}"
            refuse(name, row, reason, "Name the right --contract, or get the right file.")
        return np.full(len(column), ticker), []
    months = [each for _, each in _called(name) if symbols.read(each, contract, codes).kind == "month"]
    if found.symbol is None and found.instrument is None and len(months) == 1:
        return np.full(len(column), months[0]), [f"all rows are of {months[0]}, by the name of the file"]
    return column, []


def _called(name: str) -> list[tuple[str, str]]:
    """Contracts in the name of a file, or else in that of the zip that it lies in."""
    outer, _, inner = name.rpartition(".zip:")
    for each in (inner, outer):
        if found := symbols.in_name(Path(each).name, CONTRACTS):
            return found
    return []


def _blocks(name: str, rows: Iterator[list[str]], found: formats.Layout, line: int) -> Iterator[dict[str, np.ndarray]]:
    """The rows as arrays, some thousand at a time: text takes ten times the room."""
    like = None
    while block := list(islice(rows, BLOCK)):
        lines = line + 1 + np.flatnonzero(list(map(len, block)))  # empty rows are none
        line += len(block)
        block = [row for row in block if row]
        if not block:
            continue
        block = [row if len(row) <= found.width or any(row[found.width :]) else row[: found.width] for row in block]
        if not min(map(len, block)) == max(map(len, block)) == found.width:
            at, width = next((i, len(row)) for i, row in enumerate(block) if len(row) != found.width)
            advice = "Is the file cut off?" if width < found.width else "Are there separators within numbers?"
            refuse(name, int(lines[at]), f"expected {found.width} columns, got {width}", advice)
        texts = list(zip(*block, strict=True))
        like = like or " ".join(texts[i][0] for i in found.time)
        yield _arrays(name, texts, lines, found, like)


def _arrays(
    name: str, texts: list[tuple[str, ...]], lines: np.ndarray, found: formats.Layout, like: str
) -> dict[str, np.ndarray]:
    """Columns of text as numbers; times must be written as `like` is."""
    times = list(map(" ".join, zip(*(texts[i] for i in found.time), strict=True)))
    try:
        stamps = clock.parse(times, like)
    except clock.Unreadable as error:
        wrong = times[error.at]
        hint = "" if wrong == like else f" like {like!r}"
        refuse(name, int(lines[error.at]), f"expected a time{hint}, got {wrong!r}", "Mend or leave out the row.")
    blank, offset = np.full(len(lines), ""), stamps.offset
    return {
        "line": lines,
        "time": stamps.time,
        "offset": np.zeros(len(lines), np.int64) if offset is None else offset,
        "aware": np.full(len(lines), offset is not None),
        "price": np.stack([_numbers(name, texts[i], lines) for i in found.sides], -1),
        "volume": np.stack([_numbers(name, texts[i], lines) for i in found.volume], -1),
        "symbol": blank if found.symbol is None else np.array(texts[found.symbol]),
        "instrument": blank if found.instrument is None else np.array(texts[found.instrument]),
    }


def _numbers(name: str, texts: tuple[str, ...], lines: np.ndarray) -> np.ndarray:
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        for text, line in zip(texts, lines, strict=True):
            try:
                float(text)
            except ValueError:
                refuse(name, int(line), f"expected a number, got {text!r}", "Mend or leave out the row.")
        raise


def _points(price: np.ndarray) -> np.ndarray:
    """Prices in points; one source writes them in billionths too, the largest integer standing for none."""
    if np.median(np.abs(np.nan_to_num(price))) < 1e8:
        return price
    return np.where(price >= 2.0**63 - 1, np.nan, price * 1e-9)


def _utc(name: str, columns: dict[str, np.ndarray], told: str | None, usual: str | None) -> tuple[np.ndarray, str]:
    """Times in UTC by the zone that the texts name, that the user has told or that is usual for the source."""
    line, zone = int(columns["line"][0]), told or usual
    if columns["aware"][0]:
        if told is not None:
            refuse(name, line, "the times name their own zone", f"Leave out --zone {told}.")
        return columns["time"] - columns["offset"], "the zone they name"
    if zone is None:
        advice = "Tell the clock they were written by with --zone, e.g. --zone America/Chicago."
        refuse(name, line, "the times name no zone", advice)
    time, unclear = clock.Clock(zone).to_utc(columns["time"])
    if len(rows := np.flatnonzero(unclear)):
        refuse(
            name,
            int(columns["line"][rows[0]]),
            f"the clock of {zone} never showed this time, or twice: it is the hour of its change, on a weekend",
            "No bar can be from then, so the zone is wrong: tell the right one with --zone.",
        )
    return time, zone
