"""Files of bars that are refused with the row and the reason."""

import bz2
import gzip
import lzma

import trading_files as files
from trading_shapes import LATER, NY, OHLC, PLAIN, US, Shape, at_row, bundle, cell, change, dated, numbered, rows, timed

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
