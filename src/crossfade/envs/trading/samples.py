"""Real bars that lie inside packages on PyPI: read from the installed package, which is not imported, never shipped."""

import csv
import gzip
import importlib.util
import io
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...errors import DataError, UsageError, nearest
from ...run.files import write_text
from .importers import Imported, combine, reading, store
from .importers.clock import Clock
from .importers.table import Table


class Sample(NamedTuple):
    """What a package holds and how to get at it."""

    package: str  # as Python knows it
    install: str  # as pip does
    files: tuple[str, ...]
    meaning: str
    write: Callable[[Path, Path], Path]  # (file, folder) -> what was written


def write(name: str, folder: Path) -> list[Path]:
    """Writes the bars of an installed sample into a folder."""
    if name not in SAMPLES:
        raise UsageError(f"unknown sample {name!r}.{nearest(name, SAMPLES)} Known: {', '.join(SAMPLES)}.")
    sample = SAMPLES[name]
    spec = importlib.util.find_spec(sample.package)
    if spec is None or not spec.submodule_search_locations:
        raise UsageError(f"the sample lies in the package {sample.install}. Run `pip install {sample.install}` first.")
    root = Path(spec.submodule_search_locations[0])
    for file in sample.files:
        if not (root / file).is_file():
            raise DataError(f"{root / file}: expected the sample here, got no such file. Try another version.")
    return [sample.write(root / file, folder) for file in sample.files]


def ticks(path: Path) -> Imported:
    """Half a million trades of ES, on Chicago's clock, as minute bars that know which extreme came first."""
    with open(path, newline="") as file:
        rows = csv.reader(file)
        next(rows)
        stamps, prices, volumes = zip(*rows, strict=True)
    seconds = np.array([stamp[:19] for stamp in stamps], "datetime64[s]").astype(np.int64)
    price, volume = np.array(prices, np.float64), np.array(volumes, np.float64)
    begins = np.flatnonzero(np.concatenate([[True], np.diff(seconds) > 0]))
    last = np.concatenate([begins[1:], [len(price)]]) - 1
    sides = price[begins], np.maximum.reduceat(price, begins), np.minimum.reduceat(price, begins), price[last]
    none = np.full(len(begins), "")
    table = Table(
        names=(str(path),),
        file=np.zeros(len(begins), np.int32),
        line=begins + 2,
        time=Clock("America/Chicago").to_utc(seconds[begins])[0],
        price=np.stack(sides, -1),
        volume=np.add.reduceat(volume, begins),
        symbol=none,
        instrument=none,
    )
    return combine([reading.Read(table, "ticks", "America/Chicago", reading.digest(path))], "ES")


def _ticks(path: Path, folder: Path) -> Path:
    return store.save(folder, "ES", ticks(path))


def _table(path: Path, folder: Path) -> Path:
    """Bars of hours or days as a plain table with ISO dates, adjusted prices left out."""
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else open(path, newline="")
    with opened as file:
        text = io.StringIO()
        out = csv.writer(text, lineterminator="\n")
        out.writerow(("datetime", "open", "high", "low", "close", "volume"))
        out.writerows(_plain(csv.DictReader(file)))  # pyright: ignore[reportArgumentType]
    return write_text(folder / f"{path.name.split('.')[0].lower()}.csv", text.getvalue())


def _plain(rows: csv.DictReader) -> Iterator[list[str]]:
    for row in rows:
        stamp = row.get("Date") or row["Time"]
        yield [_date(stamp), *(row[name] for name in ("Open", "High", "Low", "Close", "Volume"))]


def _date(stamp: str) -> str:
    for form in ("%Y-%m-%d", "%m/%d/%Y", "%d.%m.%Y %H:%M:%S.%f"):
        try:
            return datetime.strptime(stamp, form).isoformat(" ")
        except ValueError:
            continue
    raise DataError(f"expected a date, got {stamp!r}.")


_QUOTES = (
    "gym_anytrading",
    "gym-anytrading",
    ("datasets/data/FOREX_EURUSD_1H_ASK.csv", "datasets/data/STOCKS_GOOGL.csv"),
)
SAMPLES = {
    "mlfinpy": Sample(
        "mlfinpy",
        "mlfinpy",
        ("dataset/data/tick_data.csv",),
        "ES in September 2013, two sessions by the minute",
        _ticks,
    ),
    "arch": Sample(
        "arch",
        "arch",
        ("data/sp500/sp500.csv.gz", "data/nasdaq/nasdaq.csv.gz"),
        "two indices by the day, 1999 to 2018: for studies, not for training",
        _table,
    ),
    "anytrading": Sample(*_QUOTES, "EURUSD by the hour and a share by the day: for studies, not for training", _table),
}
