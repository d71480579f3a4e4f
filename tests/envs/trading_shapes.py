"""Shapes that files of bars have: how the rows of one are written, and how they are changed."""

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from trading_files import CHICAGO, NEW_YORK, moments, points, some_bars

from crossfade.envs.trading.bars import Bars

_WHOLE = some_bars()
BARS = _WHOLE.where((_WHOLE.minute >= 9 * 60 + 30) & (_WHOLE.minute < 10 * 60))
NOON = _WHOLE.where(np.isin(_WHOLE.minute, [*range(570, 600), *range(690, 810)]))
LATER = BARS._replace(stamp=BARS.stamp + 14 * 24 * 60)  # from 17 January on: digits tell day and month apart
Rows = Callable[[Bars], list[str]]
Cells = Callable[[datetime, Sequence[float], int], list[str]]
OHLC = "open,high,low,close,volume"


@dataclass(frozen=True)
class Shape:
    """Bars as a file, and what comes of it: the same bars, or a row and words of the reason."""

    rows: Rows
    source: str = "csv"
    options: dict[str, Any] = field(default_factory=dict)
    name: str = "bars.csv"
    pack: Callable[[str], bytes] = lambda text: text.encode()
    end: str = "\n"
    volume: bool = True
    bars: Bars = BARS
    row: int | None = None
    """Refused at this row, or 0 where the file as a whole is; none where it is read."""
    reason: str = ""

    def write(self, folder: Path, bars: Bars) -> Path:
        path = folder / self.name
        path.write_bytes(self.pack("\n".join(self.rows(bars)) + self.end))
        return path


def rows(cells: Cells, header: str = "", delimiter: str = ",") -> Rows:
    """A header, if there is one, and the cells of each bar."""

    def write(bars: Bars) -> list[str]:
        each = zip(moments(bars), points(bars), bars.volume.tolist(), strict=True)
        return [*([header.replace(",", delimiter)] if header else []), *(delimiter.join(cells(*bar)) for bar in each)]

    return write


def timed(form: str | Callable[[datetime], str], zone: ZoneInfo = NEW_YORK, later: int = 0) -> Cells:
    """Time, open, high, low, close, volume."""
    show = form if callable(form) else lambda at: at.strftime(form)
    moved = lambda at: (at.astimezone(UTC) + timedelta(minutes=later)).astimezone(zone)
    return lambda at, sides, volume: [*show(moved(at)).split("|"), *map(str, sides), str(volume)]


def numbered(price: Callable[[float], str], volume: Callable[[int], str] = str) -> Cells:
    """UTC, and numbers as a country writes them."""
    at_utc = lambda at: at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S+00:00")
    return lambda at, sides, v: [at_utc(at), *map(price, sides), volume(v)]


def change(write: Rows, how: Callable[[list[str]], list[str]]) -> Rows:
    return lambda bars: how(write(bars))


def swap(text: str) -> str:
    """1,234.5 as 1.234,5."""
    return text.translate(str.maketrans(",.", ".,"))


def lone(form: str) -> Callable[[datetime], str]:
    """A form with day, month and hour as D, M and H, written without zeros before them."""
    twelve = lambda at: (at.hour + 11) % 12 + 1
    fill = lambda at: {"D": at.day, "M": at.month, "H": at.hour, "h": twelve(at)}
    return lambda at: at.strftime(form).format(**fill(at))


def bundle(**members: Callable[[str], bytes]) -> Callable[[str], bytes]:
    def pack(text: str) -> bytes:
        sink = io.BytesIO()
        with zipfile.ZipFile(sink, "w") as file:
            for name, data in members.items():
                file.writestr(name.replace("__", "."), data(text))
        return sink.getvalue()

    return pack


NY, CT = {"zone": "America/New_York"}, {"zone": "America/Chicago"}
EPOCH = lambda unit, form="{}": lambda at: form.format(int(at.timestamp()) * unit)
GREENWICH = ZoneInfo("UTC")
PLAIN = rows(timed("%Y-%m-%dT%H:%M:%SZ", GREENWICH), f"datetime,{OHLC}")
SIERRA = "Date,Time,Open,High,Low,Last,Volume,NumberOfTrades,BidVolume,AskVolume"
STATION = '"Date","Time","Open","High","Low","Close","Up","Down"'
IB = f"date,{OHLC},average,barCount"
MT4 = rows(timed("%Y.%m.%d|%H:%M", ZoneInfo("Europe/Athens")))
US = rows(timed("%m/%d/%Y %H:%M"), f"datetime,{OHLC}")


def with_more(cells: Cells, *more: str) -> Cells:
    return lambda at, sides, volume: [*cells(at, sides, volume), *more]


def up_and_down(at: datetime, sides: Sequence[float], volume: int) -> list[str]:
    stamp = timed("%m/%d/%Y|%H:%M", CHICAGO, later=1)(at, sides, volume)
    return [*stamp[:-1], str(volume // 3), str(volume - volume // 3)]


def early(row: str) -> str:
    """The part of a bar a minute before."""
    stamp, *rest = row.split(",")
    return ",".join([str(int(stamp) - 60), *rest])


def at_row(row: int, how: Callable[[str], str]) -> Callable[[list[str]], list[str]]:
    """Changes one row, counted from 1 with the header."""
    return lambda r: [*r[: row - 1], how(r[row - 1]), *r[row:]]


def cell(column: int, how: Callable[[str], str]) -> Callable[[str], str]:
    def changed(row: str) -> str:
        cells = row.split(",")
        return ",".join([*cells[:column], how(cells[column]), *cells[column + 1 :]])

    return changed


def dated(form: str) -> Rows:
    return rows(timed(form), f"datetime,{OHLC}")
