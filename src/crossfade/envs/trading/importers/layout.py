"""Where the columns of a file are: by its header, or by the format it looks like."""

import csv
import re
from collections.abc import Sequence
from typing import NamedTuple

from .formats import FORMATS, LEVELS, VOLUMES, Format, named
from .table import refuse

SIDES = ("open", "high", "low", "close")
DELIMITERS = "\t;|,"  # commas last: they may stand in numbers too
WHOLE_TIMES = ("ts_event", "datetime", "date_time", "date/time", "timestamp", "gmt_time", "local_time")
SYMBOLS = ("symbol", "ticker", "localsymbol")


class Layout(NamedTuple):
    """Where the columns of one file are."""

    source: str
    delimiter: str
    rows: int  # before the first bar
    width: int
    time: tuple[int, ...]
    sides: tuple[int, ...]
    volume: tuple[tuple[int, ...], ...]  # each a sum of columns; the first that is not 0 throughout counts
    symbol: int | None
    instrument: int | None
    ticker: tuple[str, int] = ("", 0)  # that the header names, and the row in which it does

    @property
    def used(self) -> set[int | None]:
        """Columns that are read."""
        return {*self.time, *self.sides, *(i for group in self.volume for i in group), self.symbol, self.instrument}


def layout(name: str, lines: Sequence[str], source: str | None) -> Layout:
    """The layout of a file by its first lines, of the given source or of the one they look like."""
    skipped, told = _preamble(lines)
    lines = lines[skipped:]
    if not lines:
        refuse(name, skipped + 1, "the file is empty", "Expected bars, one per row.")
    delimiter = told or next((d for d in DELIMITERS if len(cells_of(lines[0], d)) >= 6), ",")
    header = _words(lines, delimiter)
    source = named(source) or _detect(name, skipped + 1, lines, header)
    form = FORMATS[source]
    if form.columns:
        cells, wanted = len(cells_of(lines[0], delimiter)), form.columns.split()
        if cells < len(wanted):
            refuse(name, skipped + 1, f"expected {', '.join(wanted)}, got {cells} columns", _tell(source))
        time = len(wanted) - 5
        at = tuple(range(time, time + 4))
        return Layout(source, delimiter, skipped, cells, tuple(range(time)), at, ((time + 4,),), None, None)
    rows, tickers = (3 if _three_rows(lines, delimiter) else 1), _tickers(lines, delimiter)
    ticker = skipped + min(rows, 2)
    if len(tickers) > 1:
        refuse(name, ticker, f"several tickers: {', '.join(sorted(tickers))}", "Download one ticker per file.")
    found = {word: i for i, word in reversed(list(enumerate(header)))}
    sides = [word if word in found or word != "close" else "last" for word in SIDES]
    volumes = _volumes(form, found)
    time = time_columns(header)
    missing = [side for side in sides if side not in found] + ([] if volumes else ["volume"])
    if missing := ([] if time else ["time"]) + [{"last": "close"}.get(word, word) for word in missing]:
        reason = f"no column {', '.join(missing)}; there are {', '.join(header)}"
        refuse(name, skipped + 1, reason, _tell(source))
    read = [*sides, *(word for word in (form.volume) if word in found), *(header[i] for i in time)]
    if twice := [word for word in read if header.count(word) > 1]:
        refuse(name, skipped + 1, f"column {twice[0]} is there twice", "Leave one of them in the file.")
    symbol = next((found[word] for word in SYMBOLS if word in found), None)
    at = tuple(found[word] for word in sides)
    more = symbol, found.get("instrument_id"), (min(tickers, default=""), ticker)
    return Layout(source, delimiter, skipped + rows, len(header), time, at, volumes, *more)


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of one line, quotes taken off."""
    return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, skipinitialspace=True), [])


def _preamble(lines: Sequence[str]) -> tuple[int, str | None]:
    """How many lines are before the header: empty ones, remarks, and `sep=;`, which names the delimiter."""
    told = None
    for i, line in enumerate(lines):
        if found := re.fullmatch(r'"?sep=(.)"?\s*', line):
            told = found[1]
        elif line.strip() and not line.startswith("#"):
            return i, told
    return len(lines), told


def _detect(name: str, row: int, lines: Sequence[str], header: list[str]) -> str:
    """The source whose files begin like this."""
    words = {*header, LEVELS} if _tickers(lines, ",") else set(header)
    for source, form in FORMATS.items():
        for known in form.known_by:
            wanted = {word for word in known.split() if word[0] != "-"}
            unwanted = {word[1:] for word in known.split() if word[0] == "-"}
            fits = re.match(known, lines[0]) if known[0] == "^" else wanted <= words and not unwanted & words
            if fits and not (form.without_volume and any(_last_cell(line) for line in lines)):
                return source
    known = ", ".join(FORMATS)
    refuse(name, row, f"expected the beginning of a file of {known}, got {lines[0][:60]!r}", "Name it with --source.")


def _last_cell(line: str) -> bool:
    """Whether the last cell of a row is something but 0."""
    return line.strip().rsplit(";", 1)[-1].strip("0.") != ""


def _words(lines: Sequence[str], delimiter: str) -> list[str]:
    """The names of columns: `<OPEN>`, `Open` and `('Open', 'ES=F')` are `open`, `Adj Close` is `adj_close`."""
    cells = [cell.strip().strip("<>").strip() for cell in cells_of(lines[0], delimiter)]
    tupled = (re.match(r"\('([^']*)'", cell) for cell in cells)
    words = [(found[1] if found else cell).lower() for cell, found in zip(cells, tupled, strict=True)]
    words = ["_".join(word.split()) for word in words]
    return ["datetime", *words[1:]] if _three_rows(lines, delimiter) else words


def _three_rows(lines: Sequence[str], delimiter: str) -> bool:
    """One row of what, one of tickers, one of the index."""
    first = [cells_of(line, delimiter)[:1] for line in lines[:2]]
    return [[cell.lower() for cell in cells] for cells in first] == [["price"], ["ticker"]]


def _tickers(lines: Sequence[str], delimiter: str) -> set[str]:
    """The tickers of a header of tuples, `('Open', 'ES=F')`, or of three rows."""
    if _three_rows(lines, delimiter):
        return {cell.strip() for cell in cells_of(lines[1], delimiter)[1:] if cell.strip()}
    return {found[1] for cell in cells_of(lines[0], delimiter) if (found := re.match(r"\('[^']*', '([^']+)'", cell))}


def time_columns(header: list[str]) -> tuple[int, ...]:
    """The column of the time, or the two of date and time; a first one without a name is an index."""
    for word in WHOLE_TIMES:
        if word in header:
            return (header.index(word),)
    if "date" in header and "time" in header:
        return header.index("date"), header.index("time")
    for word in ("time", "date"):
        if word in header:
            return (header.index(word),)
    return (0,) if header[0] == "" else ()


def _volumes(form: Format, found: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    groups = [group.split("+") for group in (*form.volume, *VOLUMES)]
    return tuple(dict.fromkeys(tuple(found[w] for w in group) for group in groups if all(w in found for w in group)))


def _tell(source: str) -> str:
    return f"Read as a file of {source}; if it is another's, name that with --source."
