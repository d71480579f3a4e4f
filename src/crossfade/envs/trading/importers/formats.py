"""The formats in which bars reach users: what they look like, and what has to be known to read them.

A new source is a row of `FORMATS`. Separators, encodings, forms of times and numbers are recognised in any of them.
"""

from dataclasses import dataclass

from ....errors import UsageError, nearest
from ..sessions import NEW_YORK
from .options import Dates, Stamp

VOLUMES = ("volume", "vol", "totalvolume", "total_volume")
LEVELS = "several_levels"  # stands for a header of tuples, or of three rows


@dataclass(frozen=True)
class Format:
    """How one source writes bars. None: its files do not tell, so times, edges of sessions or the user must."""

    known_by: tuple[str, ...]
    """Words of the header that a file of it has, any one of these sets, and with a minus has not; `^` begins a
    pattern of the first row where there is no header."""
    columns: str = ""
    """Where there is no header: its columns in order."""
    zone: str | None = None
    """The clock of times that do not name one."""
    stamp: Stamp | None = None
    """Whether times are those of the start or of the end of a bar."""
    dates: Dates | None = None
    """The order of day, month and year, where digits leave it open."""
    volume: tuple[str, ...] = VOLUMES
    """Columns of the volume, the first that is not 0 throughout; `a+b` is their sum."""
    without_volume: bool = False
    """Its volume is 0 throughout: that is what tells it from another one that writes alike."""
    first_is_partial: bool = False
    """The first bar began before the export did."""


_ROW = "time open high low close volume"
_PARTED = "date " + _ROW
_COMPACT = r"^\d{8} \d{6};"
FORMATS: dict[str, Format] = {  # the first that fits
    "databento": Format(("ts_event",), zone="UTC", stamp="start"),
    "tradestation": Format(("date time up down", "date time vol oi"), stamp="end", volume=("up+down", "vol")),
    "metatrader": Format(("date time tickvol",), stamp="start", volume=("vol", "tickvol")),
    "sierra": Format(("date time last",), stamp="start"),
    "ib": Format(("average barcount", "average bar_count", "wap count"), stamp="start"),
    "dukascopy": Format(("gmt_time",), zone="UTC", stamp="start", dates="dmy"),
    "yfinance": Format((LEVELS, "adj_close", "dividends"), stamp="start"),
    "tradingview": Format(("time -date",), stamp="start", first_is_partial=True),
    "histdata": Format((_COMPACT,), _ROW, zone="UTC-5", stamp="start", without_volume=True),
    "ninjatrader": Format((_COMPACT,), _ROW, stamp="end"),
    "firstrate": Format((r"^\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?,",), _ROW, zone=NEW_YORK, stamp="start"),
    "kibot": Format((r"^\d\d/\d\d/\d{4},\d\d:\d\d,",), _PARTED, zone=NEW_YORK, stamp="start", dates="mdy"),
    "metatrader4": Format((r"^\d{4}\.\d\d\.\d\d,\d\d:\d\d,",), _PARTED, stamp="start"),
    "csv": Format(("open high low close", "open high low last")),
}


def named(source: str | None) -> str | None:
    """The source of that name, or an error with the nearest one."""
    if source is not None and source not in FORMATS:
        raise UsageError(f"unknown source {source!r}.{nearest(source, FORMATS)} Known: {', '.join(FORMATS)}.")
    return source
