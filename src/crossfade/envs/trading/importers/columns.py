"""The cells of a file as numbers, times apart."""

import csv
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple, NoReturn

import numpy as np

from .layout import Layout
from .numbers import NotOne, decimal, numbers
from .options import Decimal
from .table import refuse
from .times import Times, Unreadable

BLOCK = 10_000  # rows that are held as text at a time
MEND = "Mend or leave out the row."


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


def read_columns(name: str, lines: Iterator[str], found: Layout, mark: Decimal) -> Columns:
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


def decimal_mark(name: str, lines: list[str], found: Layout, told: Decimal | None) -> Decimal:
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
