"""One set of bars in every shape that files of bars have: read back exactly, or refused with the row and the reason."""

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
import trading_files as files
from trading_files import CHICAGO, NEW_YORK, moments, points, some_bars

from crossfade.envs.trading import importers
from crossfade.envs.trading.bars import Bars
from crossfade.envs.trading.importers import formats
from crossfade.envs.trading.importers.times import Times
from crossfade.errors import DataError

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


READ = {
    # Vendors
    "databento": Shape(files.databento, "databento"),
    "databento in integers": Shape(lambda bars: files.databento(bars, whole=True), "databento"),
    "databento by instrument": Shape(change(files.databento, lambda r: [x.rsplit(",", 1)[0] for x in r]), "databento"),
    "databento continuous": Shape(lambda bars: files.databento(bars, "ES.v.0"), "databento"),
    "firstrate": Shape(files.firstrate, "firstrate", name="ES_1min_continuous.txt"),
    "firstrate without seconds": Shape(rows(timed("%Y-%m-%d %H:%M")), "firstrate"),
    "tradingview": Shape(files.tradingview, "tradingview", name="CME_MINI_ES1!, 1.csv"),
    "tradingview in seconds": Shape(
        change(rows(timed(EPOCH(1)), "time,open,high,low,close,Volume"), lambda r: [r[0], _early(r[1]), *r[1:]]),
        "tradingview",
    ),
    "yfinance": Shape(files.yfinance, "yfinance", name="ES=F.csv"),
    "yfinance with a header of tuples": Shape(
        change(
            files.yfinance,
            lambda r: [
                ",".join(["Datetime", *(f"\"('{w}', 'ES=F')\"" for w in ("Close", "High", "Low", "Open", "Volume"))]),
                *r[3:],
            ],
        ),
        "yfinance",
    ),
    "yfinance in one level": Shape(
        rows(
            lambda at, s, v: [str(at.astimezone(CHICAGO)), *map(str, s), str(s[3]), f"{v}.0"],
            "Datetime,Open,High,Low,Close,Adj Close,Volume",
        ),
        "yfinance",
    ),
    "ninjatrader": Shape(files.ninjatrader, "ninjatrader", CT, name="ES 03-22.Last.txt"),
    "ninjatrader with decimal commas": Shape(
        change(files.ninjatrader, lambda r: [x.replace(".", ",") for x in r]), "ninjatrader", CT
    ),
    "histdata": Shape(files.histdata, "histdata", volume=False),
    "metatrader 5": Shape(files.metatrader, "metatrader", {"zone": "America/New_York+7"}),
    "metatrader 4": Shape(MT4, "metatrader4", {"zone": "Europe/Athens"}),
    "sierra": Shape(
        rows(with_more(timed(lone("%Y/{M}/{D}|%H:%M:%S.000000"), CHICAGO), "9", "4", "5"), SIERRA, ", "), "sierra", CT
    ),
    "sierra's chart": Shape(
        rows(
            lambda at, s, v: [*timed("%Y-%m-%d|%H:%M:%S", CHICAGO)(at, s, v), "12", "1.0", "2.0"],
            "Date,Time,Open,High,Low,Last,Volume,# of Trades,OHLC Avg,HLC Avg",
            ", ",
        ),
        "sierra",
        CT,
    ),
    "kibot": Shape(rows(timed("%m/%d/%Y|%H:%M")), "kibot", name="ES.txt"),
    "tradestation": Shape(rows(up_and_down, STATION), "tradestation", {**CT, "dates": "mdy"}),
    "tradestation with one volume": Shape(
        rows(
            with_more(timed("%m/%d/%Y|%H:%M", CHICAGO, later=1), "0"),
            '"Date","Time","Open","High","Low","Close","Vol","OI"',
        ),
        "tradestation",
        {**CT, "dates": "mdy"},
    ),
    "ib with its zone": Shape(rows(with_more(timed("%Y%m%d %H:%M:%S US/Eastern"), "1.5", "7"), IB), "ib"),
    "ib with another zone": Shape(
        rows(with_more(timed("%Y%m%d %H:%M:%S America/Chicago", CHICAGO), "1.5", "7"), IB), "ib"
    ),
    "ib with two spaces": Shape(rows(with_more(timed("%Y%m%d  %H:%M:%S"), "1.5", "7"), IB), "ib", NY),
    "ib with a dash": Shape(
        rows(with_more(timed("%Y%m%d-%H:%M:%S", GREENWICH), "1.5", "7"), IB), "ib", {"zone": "UTC"}
    ),
    "ib as a data frame": Shape(
        rows(lambda at, s, v: ["0", at.isoformat(" "), *map(str, s), f"{v}.0", "1.5", "7"], f",{IB}"), "ib"
    ),
    "dukascopy": Shape(
        rows(timed("%d.%m.%Y %H:%M:%S.000", GREENWICH), "Gmt time,Open,High,Low,Close,Volume"), "dukascopy"
    ),
    # Times
    "ISO in UTC": Shape(PLAIN),
    "seconds since 1970": Shape(rows(timed(EPOCH(1)), f"timestamp,{OHLC}")),
    "seconds with decimals": Shape(rows(timed(EPOCH(1, "{}.0")), f"timestamp,{OHLC}")),
    "thousandths": Shape(rows(timed(EPOCH(1000)), f"timestamp,{OHLC}")),
    "millionths with decimals": Shape(rows(timed(EPOCH(10**6, "{}.000")), f"timestamp,{OHLC}")),
    "billionths": Shape(rows(timed(EPOCH(10**9)), f"timestamp,{OHLC}")),
    "fourteen digits": Shape(rows(timed("%Y%m%d%H%M%S"), f"datetime,{OHLC}"), options=NY),
    "twelve digits": Shape(rows(timed("%Y%m%d%H%M"), f"datetime,{OHLC}"), options=NY),
    "US dates, AM and PM": Shape(
        rows(timed("%m/%d/%Y %I:%M:%S %p"), f"date,{OHLC}"), options={**NY, "dates": "mdy"}, bars=NOON
    ),
    "US dates without zeros": Shape(
        rows(timed(lone("{M}/{D}/%Y {h}:%M %p")), f"date,{OHLC}"), options={**NY, "dates": "mdy"}, bars=NOON
    ),
    "US dates that tell": Shape(US, options=NY, bars=LATER),
    "European dates that tell": Shape(rows(timed("%d/%m/%Y %H:%M"), f"date,{OHLC}"), options=NY, bars=LATER),
    "European dates": Shape(rows(timed("%d/%m/%Y %H:%M"), f"date,{OHLC}"), options={**NY, "dates": "dmy"}),
    "dates with points": Shape(rows(timed("%d.%m.%Y|%H:%M:%S"), f"date,time,{OHLC}"), options=NY),
    "years of two digits": Shape(rows(timed("%m/%d/%y|%H:%M"), f"date,time,{OHLC}"), options={**NY, "dates": "mdy"}),
    "small am and pm with dots": Shape(
        rows(timed(lambda at: f"{at:%Y-%m-%d %I:%M} {'ap'[at.hour > 11]}.m."), f"date,{OHLC}"), options=NY, bars=NOON
    ),
    "an abbreviated zone": Shape(rows(timed("%Y-%m-%d %H:%M:%S EST"), f"datetime,{OHLC}"), options=NY),
    "an offset behind GMT": Shape(
        rows(timed("%d.%m.%Y %H:%M:%S.000 GMT+0100", ZoneInfo("Europe/Berlin")), f"Local time,{OHLC}")
    ),
    "times of the end, by edges": Shape(rows(timed("%Y-%m-%d %H:%M", later=1), f"datetime,{OHLC}"), options=NY),
    "times of the end, as told": Shape(rows(timed("%Y-%m-%d %H:%M", later=1)), "firstrate", options={"stamp": "end"}),
    # Separators and numbers
    "tabs": Shape(change(PLAIN, lambda r: [x.replace(",", "\t") for x in r])),
    "semicolons": Shape(change(PLAIN, lambda r: [x.replace(",", ";") for x in r])),
    "bars between columns": Shape(change(PLAIN, lambda r: [x.replace(",", "|") for x in r])),
    "decimal commas": Shape(rows(numbered(lambda x: f"{x:.2f}".replace(".", ",")), f"datetime,{OHLC}", ";")),
    "thousands with commas": Shape(
        rows(numbered(lambda x: f'"{x:,.2f}"', lambda v: f'"{v:,}"'), f"datetime,{OHLC}", ",")
    ),
    "thousands with points": Shape(
        rows(numbered(lambda x: swap(f"{x:,.2f}"), lambda v: swap(f"{v:,}")), f"datetime,{OHLC}", ";")
    ),
    "thousands with apostrophes": Shape(
        rows(
            numbered(lambda x: f"{x:,.2f}".replace(",", "'"), lambda v: f"{v:,}".replace(",", "'")), f"datetime,{OHLC}"
        )
    ),
    "thousands with spaces": Shape(
        rows(
            numbered(lambda x: f"{x:,.2f}".replace(",", " ").replace(".", ","), lambda v: f"{v:,}".replace(",", " ")),
            f"datetime,{OHLC}",
            ";",
        )
    ),
    "every cell in quotes": Shape(change(PLAIN, lambda r: [",".join(f'"{c}"' for c in x.split(",")) for x in r])),
    "columns in another order": Shape(
        rows(
            lambda at, s, v: [str(v), str(s[3]), str(s[2]), str(s[1]), str(s[0]), at.isoformat()],
            "Volume,Close,Low,High,Open,Date",
        )
    ),
    "columns of indicators": Shape(
        rows(
            lambda at, s, v: [at.isoformat(), "1", *map(str, s), "nan", str(v), ""],
            "Date,RSI,Open,High,Low,Close,SMA,Volume,",
        )
    ),
    "a delimiter at the end": Shape(change(PLAIN, lambda r: [r[0], *(f"{x}," for x in r[1:])])),
    "a column `symbol`": Shape(
        rows(with_more(timed("%Y-%m-%d %H:%M:%S+00:00", GREENWICH), "ES 03-22"), f"datetime,{OHLC},symbol")
    ),
    "a column `ticker`": Shape(
        rows(with_more(timed("%Y-%m-%d %H:%M:%S+00:00", GREENWICH), "ES1!"), f"datetime,{OHLC},ticker")
    ),
    "an index without a name": Shape(rows(timed(lambda at: at.isoformat(" ")), f",{OHLC}")),
    # Files
    "UTF-16": Shape(PLAIN, pack=lambda text: text.encode("utf-16")),
    "UTF-16 the other way": Shape(PLAIN, pack=lambda text: b"\xfe\xff" + text.encode("utf-16-be")),
    "UTF-16 without a mark": Shape(PLAIN, pack=lambda text: text.encode("utf-16-le")),
    "UTF-8 with a mark": Shape(PLAIN, pack=lambda text: text.encode("utf-8-sig")),
    "lines of Windows": Shape(PLAIN, pack=lambda text: text.replace("\n", "\r\n").encode()),
    "lines of old Macintoshes": Shape(PLAIN, pack=lambda text: text.replace("\n", "\r").encode()),
    "gzip": Shape(PLAIN, name="bars.csv.gz", pack=lambda text: gzip.compress(text.encode())),
    "gzip under another name": Shape(PLAIN, pack=lambda text: gzip.compress(text.encode())),
    "bzip2": Shape(PLAIN, name="bars.csv.bz2", pack=lambda text: bz2.compress(text.encode())),
    "xz": Shape(PLAIN, name="bars.csv.xz", pack=lambda text: lzma.compress(text.encode())),
    "zip": Shape(PLAIN, name="bars.zip", pack=bundle(bars__CSV=str.encode)),
    "zip of gzip and more": Shape(
        PLAIN,
        name="bars.zip",
        pack=bundle(bars__csv__gz=lambda text: gzip.compress(text.encode("utf-16")), condition__json=lambda _: b"{}"),
    ),
    "a first line `sep=;`": Shape(change(PLAIN, lambda r: ["sep=;", *(x.replace(",", ";") for x in r)])),
    "remarks before the header": Shape(change(PLAIN, lambda r: ["# ES, made by hand", "", *r])),
    "empty lines": Shape(change(PLAIN, lambda r: [*r[:40], "", *r[40:], "", ""])),
    "rows twice": Shape(change(PLAIN, lambda r: [*r[:41], *r[40:]])),
    "no end of the last line, kept": Shape(PLAIN, options={"last_row": "keep"}, end=""),
    "no end of the last line in a column not read": Shape(change(PLAIN, lambda r: [f"{x},note" for x in r]), end=""),
}


def _early(row: str) -> str:
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


REFUSED = {
    "dates that may be US or European": Shape(US, options=NY, row=2, reason="--dates mdy, --dates dmy"),
    "years of two digits, not told": Shape(dated("%m/%d/%y %H:%M"), options=NY, row=2, reason="--dates"),
    "both orders of dates in one file": Shape(
        change(US, at_row(60, lambda x: "25/01/2022" + x[10:])),
        options=NY,
        bars=LATER,
        row=60,
        reason="the other number is the month",
    ),
    "dates told wrongly": Shape(US, options={**NY, "dates": "dmy"}, bars=LATER, row=2, reason="day 1 of month 17"),
    "dates told where the year is first": Shape(
        dated("%Y-%m-%d %H:%M"), options={"dates": "mdy"}, row=2, reason="year"
    ),
    "dates with and without zeros": Shape(
        change(dated("%Y-%m-%d %H:%M"), at_row(60, lambda x: x.replace("-01-", "-1-"))),
        options=NY,
        row=60,
        reason="expected a time like '2022-01-03 09:30'",
    ),
    "months by name": Shape(dated("%d %b %Y %H:%M"), options=NY, row=2, reason="expected a time"),
    "days as spreadsheets count them": Shape(
        rows(timed(lambda at: f"{at.timestamp() / 86400 + 25569:.6f}"), f"datetime,{OHLC}"),
        row=2,
        reason="expected a time",
    ),
    "seconds in powers of ten": Shape(
        rows(timed(lambda at: f"{at.timestamp():.7e}"), f"timestamp,{OHLC}"), row=2, reason="expected a time"
    ),
    "seconds from another epoch": Shape(
        rows(timed(lambda at: str(int(at.timestamp()) // 10)), f"timestamp,{OHLC}"), row=2, reason="far from now"
    ),
    "parts of seconds": Shape(dated("%Y-%m-%d %H:%M:00.500"), options=NY, row=2, reason="bars begin on whole seconds"),
    "thirteen o'clock PM": Shape(dated("%Y-%m-%d 13:%M PM"), options=NY, row=2, reason="expected a time"),
    "no zone": Shape(dated("%Y-%m-%d %H:%M"), row=2, reason="the times name no zone"),
    "an abbreviated zone, not told": Shape(
        dated("%Y-%m-%d %H:%M EST"), row=2, reason="'EST' behind the times is no zone"
    ),
    "a zone that is none": Shape(dated("%Y-%m-%d %H:%M Mars/North"), row=2, reason="a zone that is not known"),
    "a zone told beside another": Shape(PLAIN, options=NY, row=2, reason="name their own zone"),
    "times of the end by a format of starts": Shape(
        rows(timed("%Y-%m-%d %H:%M", later=1)), row=1, reason="--stamp start or --stamp end"
    ),
    "thousands that may be decimals": Shape(
        rows(numbered(lambda x: f'"{x:,.0f}"', str), f"datetime,{OHLC}"), row=2, reason="--decimal comma"
    ),
    "volumes that may be thousands": Shape(
        rows(numbered(lambda x: f"{x:.0f}", lambda v: f"{v / 1000:.3f}"), f"datetime,{OHLC}"), row=2, reason="--decimal"
    ),
    "both kinds of decimals": Shape(
        change(
            rows(numbered(lambda x: f"{x:.2f}".replace(".", ",")), f"datetime,{OHLC}", ";"),
            at_row(60, lambda x: x.replace(",", ".")),
        ),
        row=60,
        reason="--decimal",
    ),
    "thousands without quotes": Shape(
        rows(numbered(lambda x: f"{x:,.2f}"), f"datetime,{OHLC}"), row=2, reason="expected 6 columns, got 10"
    ),
    "thousands in the wrong place": Shape(
        change(PLAIN, at_row(60, cell(5, lambda v: f'"{v}0,5"'))),
        options={"decimal": "point"},
        row=60,
        reason="expected a number",
    ),
    "the last row cut off": Shape(
        change(PLAIN, lambda r: [*r[:-1], r[-1][:35]]), end="", row=241, reason="Is the file cut off?"
    ),
    "a row cut off": Shape(change(PLAIN, at_row(60, lambda x: x[:35])), row=60, reason="Is the file cut off?"),
    "a row too wide": Shape(change(PLAIN, at_row(60, lambda x: x + ",7")), row=60, reason="expected 6 columns, got 7"),
    "a quote that is never closed": Shape(
        change(PLAIN, lambda r: [f"{r[0]},note", *(f"{x},ok" for x in r[1:50]), f'{r[50]},"ok', *r[51:]]),
        row=51,
        reason="a quote that is not closed",
    ),
    "two files one behind the other": Shape(change(PLAIN, lambda r: [*r, *r]), row=242, reason="expected a time like"),
    "newest first": Shape(change(PLAIN, lambda r: [r[0], *r[:0:-1]]), row=3, reason="Sort the file by time"),
    "rows twice with other prices": Shape(
        change(PLAIN, lambda r: [*r[:41], cell(5, lambda v: v + "0")(r[40]), *r[41:]]), row=42, reason="two bars of"
    ),
    "a column twice": Shape(
        change(PLAIN, lambda r: [f"{r[0]},close", *(f"{x},1" for x in r[1:])]),
        row=1,
        reason="column close is there twice",
    ),
    "no column of volume": Shape(
        change(PLAIN, lambda r: [x.rsplit(",", 1)[0] for x in r]), row=1, reason="no column volume"
    ),
    "words of another language": Shape(
        change(PLAIN, lambda r: ["Datum,Auf,Hoch,Tief,Schluss,Umsatz", *r[1:]]), row=1, reason="expected the beginning"
    ),
    "columns without a header": Shape(
        change(PLAIN, lambda r: [x.replace(",", "\t") for x in r[1:]]), row=1, reason="Name it with --source"
    ),
    "ticks": Shape(
        change(PLAIN, lambda r: ["DateTime,Price,Volume", *(",".join(x.split(",")[:3]) for x in r[1:])]),
        row=1,
        reason="expected the beginning",
    ),
    "a symbol of another contract": Shape(lambda bars: files.databento(bars, "NQH2"), row=2, reason="no month of ES"),
    "letters that are no UTF-8": Shape(PLAIN, pack=lambda text: text.encode() + b"\x80\x81", row=0, reason="damaged"),
    "half of a gzip": Shape(
        PLAIN, name="f.gz", pack=lambda t: gzip.compress(t.encode())[:-99], row=0, reason="damaged"
    ),
    "half of a bzip2": Shape(
        PLAIN, name="f.bz2", pack=lambda t: bz2.compress(t.encode())[:-99], row=0, reason="damaged"
    ),
    "half of an xz": Shape(PLAIN, name="f.xz", pack=lambda t: lzma.compress(t.encode())[:-99], row=0, reason="damaged"),
    "a spreadsheet": Shape(
        PLAIN, name="f.xlsx", pack=bundle(sheet__xml=str.encode), row=0, reason="expected .csv or .txt files in the zip"
    ),
    "Zstandard": Shape(PLAIN, name="f.zst", pack=lambda _: b"\x28\xb5\x2f\xfd", row=0, reason="zstandard"),
}


def same(found: Bars, expected: Bars, volume: bool = True) -> bool:
    return all(
        np.array_equal(getattr(found, name), getattr(expected, name))
        for name in Bars._fields
        if volume or name != "volume"
    )


@pytest.mark.parametrize("name", READ)
def test_the_bars_come_back_exactly(name: str, tmp_path: Path):
    shape = READ[name]
    found = importers.read(shape.write(tmp_path, shape.bars), "ES", **shape.options)
    assert same(found.bars, shape.bars, shape.volume)
    assert found.report.source == shape.source
    assert found.report.cut == 0 and found.report.rounded == 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_with_row_and_reason(name: str, tmp_path: Path):
    shape = REFUSED[name]
    path = shape.write(tmp_path, shape.bars)
    with pytest.raises(DataError) as refused:
        importers.read(path, "ES", **shape.options)
    told = str(refused.value)
    assert str(path) in told and shape.reason in told
    assert shape.row == 0 or told.startswith(f"{path}: row {shape.row}: "), told


def test_the_guard_of_exactness_sees_one_tick_and_one_minute(tmp_path: Path):
    """In every shape: if this passed with other bars, the comparison above would see nothing."""
    for shape in READ.values():
        close = shape.bars.close.copy()
        close[77] = shape.bars.low[77] + (shape.bars.close[77] == shape.bars.low[77])
        other = shape.bars._replace(close=close)
        found = importers.read(shape.write(tmp_path, other), "ES", **shape.options)
        assert same(found.bars, other, shape.volume) and not same(found.bars, shape.bars, shape.volume)


def test_what_is_told_is_needed(tmp_path: Path):
    """Without the options a shape is refused or read as other bars: nobody has to tell what a file says itself."""
    for name, shape in READ.items():
        for option in shape.options:
            fewer = {key: value for key, value in shape.options.items() if key != option}
            try:
                found = importers.read(shape.write(tmp_path, shape.bars), "ES", **fewer)
            except DataError as refused:
                assert f"--{option}" in str(refused), (name, refused)
            else:
                assert found.report.cut == 1, name


def test_twelve_comes_before_one():
    """Midnight is 12 AM, noon is 12 PM."""
    texts = [f"2022-01-03 {each}" for each in ("12:30 AM", "01:30 AM", "12:30 PM", "01:30 PM", "11:30 PM")]
    np.testing.assert_array_equal(Times(texts[0]).parse(texts).second / 1800, [1, 3, 25, 27, 47])


def test_there_are_enough_shapes_and_every_format_has_one():
    assert len(READ) + len(REFUSED) >= 52
    assert {shape.source for shape in READ.values()} == set(formats.FORMATS)


@pytest.mark.parametrize(
    "name, told",
    {
        "kibot": ["dates are mdy, as this source writes them", "times are by America/New_York, as kibot writes them"],
        "times of the end, by edges": ["times are the end of bars, by 14 of 14 edges of sessions"],
        "dates with points": ["dates are dmy, as dates with points are"],
        "US dates that tell": ["dates are mdy, row 2 has a second number above 12"],
        "ninjatrader": [
            "all rows are of ES 03-22, by the name of the file",
            "times are the end of bars, as ninjatrader",
        ],
        "zip of gzip and more": ["left out of the zip: condition.json"],
        "rows twice": ["1 duplicates"],
    }.items(),
)
def test_what_was_assumed_is_in_the_report(name: str, told: list[str], tmp_path: Path):
    shape = READ[name]
    text = importers.read(shape.write(tmp_path, shape.bars), "ES", **shape.options).report.text()
    assert all(each in text for each in told), text
