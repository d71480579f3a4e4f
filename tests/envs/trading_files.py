"""Bars written as the vendors write them, so that what is read back is known."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from crossfade.envs.trading import synthetic
from crossfade.envs.trading.bars import Bars, nearer_extreme_first
from crossfade.envs.trading.contracts import contract

NEW_YORK, CHICAGO = ZoneInfo("America/New_York"), ZoneInfo("America/Chicago")
TICK = contract("ES").tick


def some_bars(days: int = 8, seed: int = 0, mode: synthetic.Mode = "default") -> Bars:
    """Days of synthetic bars in which nobody knows which extreme came first."""
    bars = synthetic.bars(("ES",), days, seed, mode)["ES"]
    return bars._replace(high_first=nearer_extreme_first(bars))


def round_the_clock(bars: Bars) -> Bars:
    """The same days with calm bars at all other hours of trading, from midnight on."""
    minute = np.arange(24 * 60)
    minute = minute[(minute < 17 * 60) | (minute >= 18 * 60)]
    days = np.unique(bars.date)
    stamp = (days[:, None] * 24 * 60 + minute).reshape(-1)
    friday_night = ((stamp // 1440 + 3) % 7 == 4) & (stamp % 1440 >= 17 * 60)
    stamp = stamp[~friday_night]
    before = bars.close[np.maximum(np.searchsorted(bars.stamp, stamp) - 1, 0)]
    calm = Bars(stamp, before, before, before, before, np.ones_like(stamp), np.zeros(len(stamp), bool))
    at = np.searchsorted(stamp, bars.stamp)
    columns = [column.copy() for column in calm]
    for column, own in zip(columns, bars, strict=True):
        column[at] = own
    return Bars(*columns)


def once(write: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Of the same bars the same rows, made once."""
    made: dict[Any, tuple[Bars, list[Any]]] = {}

    @wraps(write)
    def again(bars: Bars, *rest: Any, **more: Any) -> list[Any]:
        key = *map(id, bars), rest, *more.items()
        if key not in made:
            made[key] = bars, write(bars, *rest, **more)
        return list(made[key][1])

    return again


@once
def moments(bars: Bars) -> list[datetime]:
    """The starts of the bars."""
    return [(datetime(1970, 1, 1) + timedelta(minutes=int(stamp))).replace(tzinfo=NEW_YORK) for stamp in bars.stamp]


@once
def points(bars: Bars) -> list[list[float]]:
    """open, high, low, close of each bar."""
    return (np.stack([bars.open, bars.high, bars.low, bars.close], -1) * TICK).tolist()


def _rows(bars: Bars, form: str, zone, delimiter: str, minutes: int = 0, volume: bool = True) -> list[str]:
    later = timedelta(minutes=minutes)
    found = []
    for at, sides, v in zip(moments(bars), points(bars), bars.volume, strict=True):
        shown = (at.astimezone(UTC) + later).astimezone(zone)
        found.append(delimiter.join([shown.strftime(form), *map(str, sides), str(int(v) if volume else 0)]))
    return found


@once
def databento(bars: Bars, symbol: str = "ESH2", whole: bool = False) -> list[str]:
    """ISO times and decimal prices, or nanoseconds and billionths."""
    rows = ["ts_event,rtype,publisher_id,instrument_id,open,high,low,close,volume,symbol"]
    for at, sides, v in zip(moments(bars), points(bars), bars.volume, strict=True):
        stamp = at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000000Z")
        numbers = [f"{x:.9f}" for x in sides]
        if whole:
            stamp, numbers = f"{int(at.timestamp())}000000000", [str(round(x * 1e9)) for x in sides]
        rows.append(",".join([stamp, "33", "1", "42", *numbers, str(v), symbol]))
    return rows


@once
def firstrate(bars: Bars) -> list[str]:
    return _rows(bars, "%Y-%m-%d %H:%M:%S", NEW_YORK, ",")


@once
def tradingview(bars: Bars) -> list[str]:
    """The first row is the part of a bar, which is to be left out."""
    rows = []
    for at, sides, v in zip(moments(bars), points(bars), bars.volume, strict=True):
        stamp = at.astimezone(CHICAGO).isoformat()
        rows.append(",".join([stamp, *map(str, sides), "50.5", str(v)]))
    part = (moments(bars)[0] - timedelta(minutes=1)).astimezone(CHICAGO).isoformat()
    return ["time,open,high,low,close,RSI,Volume", ",".join([part, *map(str, points(bars)[0]), "50.5", "1"]), *rows]


@once
def yfinance(bars: Bars) -> list[str]:
    """With the three rows of header that a table of several levels has."""
    rows = ["Price,Close,High,Low,Open,Volume", "Ticker,ES=F,ES=F,ES=F,ES=F,ES=F", "Datetime,,,,,"]
    for at, (o, h, l, c), v in zip(moments(bars), points(bars), bars.volume, strict=True):  # noqa: E741
        rows.append(",".join([str(at.astimezone(UTC)), *map(str, (c, h, l, o)), str(v)]))
    return rows


@once
def ninjatrader(bars: Bars) -> list[str]:
    """Times of the end of the bar, on Chicago's clock."""
    return _rows(bars, "%Y%m%d %H%M%S", CHICAGO, ";", minutes=1)


@once
def histdata(bars: Bars) -> list[str]:
    """Eastern standard time the whole year, and no volume."""
    return _rows(bars, "%Y%m%d %H%M%S", ZoneInfo("Etc/GMT+5"), ";", volume=False)


@once
def metatrader(bars: Bars) -> list[str]:
    """A server seven hours ahead of New York."""
    rows = ["<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>"]
    for at, sides, v in zip(moments(bars), points(bars), bars.volume, strict=True):
        shown = at.replace(tzinfo=None) + timedelta(hours=7)
        rows.append("\t".join([shown.strftime("%Y.%m.%d\t%H:%M:%S"), *map(str, sides), "7", str(v), "1"]))
    return rows


def write(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path
