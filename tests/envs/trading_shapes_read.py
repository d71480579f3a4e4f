"""Files of bars that are read back exactly."""

import bz2
import gzip
import lzma
from zoneinfo import ZoneInfo

import trading_files as files
from trading_files import CHICAGO
from trading_shapes import (
    CT,
    EPOCH,
    GREENWICH,
    IB,
    LATER,
    MT4,
    NOON,
    NY,
    OHLC,
    PLAIN,
    SIERRA,
    STATION,
    US,
    Shape,
    bundle,
    change,
    early,
    lone,
    numbered,
    rows,
    swap,
    timed,
    up_and_down,
    with_more,
)

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
        change(rows(timed(EPOCH(1)), "time,open,high,low,close,Volume"), lambda r: [r[0], early(r[1]), *r[1:]]),
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
