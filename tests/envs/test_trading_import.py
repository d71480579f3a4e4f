"""What vendors write is read back to the tick and the minute; what cannot be trusted is refused with its row."""

import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import trading_files as files
from trading_files import TICK, some_bars, write

from crossfade.envs.trading import build, importers
from crossfade.envs.trading.bars import Bars
from crossfade.envs.trading.importers import clock, store
from crossfade.errors import DataError, UsageError

BARS = some_bars()


def same(found: Bars, expected: Bars, but: tuple[str, ...] = ()) -> None:
    for name in set(Bars._fields) - set(but):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


@dataclass(frozen=True)
class Vendor:
    write: Callable[[Bars], list[str]]
    zone: str | None = None
    volume: bool = True


VENDORS = {
    "databento": Vendor(files.databento),
    "firstrate": Vendor(files.firstrate),
    "tradingview": Vendor(files.tradingview),
    "yfinance": Vendor(files.yfinance),
    "ninjatrader": Vendor(files.ninjatrader, "America/Chicago"),
    "histdata": Vendor(files.histdata, volume=False),
    "metatrader": Vendor(files.metatrader, "America/New_York+7"),
}


@pytest.mark.parametrize("name", VENDORS)
def test_each_format_is_recognised_and_read_back_exactly(name: str, tmp_path: Path):
    vendor = VENDORS[name]
    found = importers.read(write(tmp_path / "file", vendor.write(BARS)), "ES", zone=vendor.zone)
    assert found.report.source == name
    same(found.bars, BARS, () if vendor.volume else ("volume",))


def test_across_the_change_of_clocks_every_format_agrees(tmp_path: Path):
    """From 7 to 16 March: New York changes its clock in between, and Eastern standard time does not."""
    bars = BARS._replace(stamp=BARS.stamp + 9 * 7 * 24 * 60)
    for name, vendor in VENDORS.items():
        found = importers.read(write(tmp_path / name, vendor.write(bars)), "ES", zone=vendor.zone)
        np.testing.assert_array_equal(found.bars.stamp, bars.stamp, name)


def test_integer_prices_and_nanoseconds_are_read(tmp_path: Path):
    same(importers.read(write(tmp_path / "f.csv", files.databento(BARS, whole=True)), "ES").bars, BARS)


def test_a_zip_of_several_files_is_one_series(tmp_path: Path):
    half = BARS.stamp < np.median(BARS.stamp)
    with zipfile.ZipFile(tmp_path / "GLBX.zip", "w") as bundle:
        bundle.writestr("metadata.json", "{}")
        for name, keep in (("b.csv", half), ("a.csv", ~half)):
            bundle.writestr(name, "\n".join(files.databento(BARS.where(keep))))
    found = importers.read(tmp_path / "GLBX.zip", "ES")
    same(found.bars, BARS)
    assert len(found.report.files) == 2


def test_rows_that_say_the_same_again_are_counted_and_left_out(tmp_path: Path):
    rows = files.firstrate(BARS)
    found = importers.read(write(tmp_path / "f.txt", [*rows[:50], *rows[49:]]), "ES")
    same(found.bars, BARS)
    assert found.report.duplicates == 1
    twice = [write(tmp_path / name, rows) for name in ("one.txt", "two.txt")]
    assert importers.read(twice, "ES").report.duplicates == len(rows)
