"""What vendors write is read back to the tick and the minute; what cannot be trusted is refused with its row."""

import gzip
import sys
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
MIXED = some_bars(mode="mixed_contracts")
WIDEST_JUMP = int((np.abs(np.diff(MIXED.close)) * (np.diff(MIXED.date) == 0)).argmax()) + 2
ROUND_THE_CLOCK = files.round_the_clock(BARS)


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
    assert found.report.source == name and found.report.partial == (name == "tradingview")
    same(found.bars, BARS, () if vendor.volume else ("volume",))


def test_across_the_change_of_clocks_every_format_agrees(tmp_path: Path):
    """From 7 to 16 March: New York changes its clock in between, and Eastern standard time does not."""
    bars = BARS._replace(stamp=BARS.stamp + 9 * 7 * 24 * 60)
    for name, vendor in VENDORS.items():
        found = importers.read(write(tmp_path / name, vendor.write(bars)), "ES", zone=vendor.zone)
        np.testing.assert_array_equal(found.bars.stamp, bars.stamp, name)


def test_integer_prices_and_nanoseconds_are_read(tmp_path: Path):
    same(importers.read(write(tmp_path / "f.csv", files.databento(BARS, whole=True)), "ES").bars, BARS)


def test_a_header_of_tuples_is_read_as_one_of_words(tmp_path: Path):
    """As tables with several levels of columns come out of other formats."""
    words = [f"\"('{word}', 'ES=F')\"" for word in ("Close", "High", "Low", "Open", "Volume")]
    rows = [",".join(["Datetime", *words]), *files.yfinance(BARS)[3:]]
    same(importers.read(write(tmp_path / "f.csv", rows), "ES").bars, BARS)


def test_a_zip_of_several_files_is_one_series(tmp_path: Path):
    half = BARS.stamp < np.median(BARS.stamp)
    with zipfile.ZipFile(tmp_path / "GLBX.zip", "w") as bundle:
        bundle.writestr("metadata.json", "{}")
        for name, keep in (("b.csv", half), ("a.csv", ~half)):
            bundle.writestr(name, "\n".join([*files.databento(BARS.where(keep)), ""]))
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


def test_delivery_months_are_chosen_by_volume_and_every_roll_is_told(tmp_path: Path):
    """The new month has more volume on the fourth day, so it is traded from the fifth on; a spread is left out."""
    days = np.unique(BARS.date)
    old = BARS._replace(volume=np.where(BARS.date < days[3], 1000, 10))
    new = BARS._replace(
        **{side: getattr(BARS, side) + np.int32(160) for side in ("open", "high", "low", "close")},
        volume=np.where(BARS.date < days[3], 10, 1000),
    )
    spread = [
        f"{row.split(',')[0]},33,1,7,-40.25,-40.00,-41.00,-40.50,3,ESH2-ESM2" for row in files.databento(BARS)[1:40]
    ]
    rows = files.databento(old)[1:] + files.databento(new, "ESM2")[1:] + spread
    header = files.databento(old)[:1]
    found = importers.read(write(tmp_path / "f.csv", header + sorted(rows)), "ES")
    same(found.bars.where(found.bars.date < days[4]), old.where(old.date < days[4]))
    same(found.bars.where(found.bars.date >= days[4]), new.where(new.date >= days[4]))
    assert found.report.spreads == len(spread) and found.report.other_months == len(BARS.stamp)
    [roll] = found.report.rolls
    assert (roll.old, roll.new, roll.session) == ("ESH2", "ESM2", str(np.datetime64(int(days[4]), "D")))
    assert (roll.old_volume, roll.new_volume) == (510 * 10, 510 * 1000)
    before, after = old.close[old.date == days[3]][-1], new.open[new.date == days[4]][0]
    assert roll.jump == TICK * (after - before)


def test_months_without_symbols_are_told_apart_by_instrument(tmp_path: Path):
    later = BARS._replace(**{side: getattr(BARS, side) + np.int32(160) for side in ("open", "high", "low", "close")})
    rows = [row.rsplit(",", 1)[0] for row in files.databento(BARS)]
    more = [
        row.rsplit(",", 1)[0].replace(",42,", ",43,")
        for row in files.databento(later._replace(volume=BARS.volume // 9))
    ]
    found = importers.read(write(tmp_path / "f.csv", rows[:1] + sorted(rows[1:] + more[1:])), "ES")
    same(found.bars, BARS)
    assert found.report.other_months == len(BARS.stamp) and found.report.rolls == []


def test_rolls_of_a_continuous_series_are_told_where_its_instrument_changes(tmp_path: Path):
    day = np.unique(BARS.date)[5]
    [header, *rows] = files.databento(BARS, "ES.v.0")
    rows = [row.replace(",42,", ",43,") if d >= day else row for row, d in zip(rows, BARS.date, strict=True)]
    found = importers.read(write(tmp_path / "f.csv", [header, *rows]), "ES")
    same(found.bars, BARS)
    [roll] = found.report.rolls
    assert (roll.old, roll.new, roll.old_volume, roll.session) == ("42", "43", None, str(np.datetime64(int(day), "D")))


def test_bars_of_one_second_become_minutes_that_know_which_extreme_came_first(tmp_path: Path):
    rng = np.random.default_rng(0)
    seconds = 60 * 400
    walk = (20_000 + np.cumsum(rng.integers(-2, 3, seconds + 1))).astype(int)
    rows = ["ts_event,open,high,low,close,volume,symbol"]
    for s in range(seconds):
        o, c = walk[s], walk[s + 1]
        sides = np.array([o, max(o, c) + s % 2, min(o, c), c]) * TICK
        rows.append(",".join([str((1_641_220_200 + s) * 10**9), *map(str, sides), "2", "ESH2"]))  # 3 January, 09:30
    found = importers.read(write(tmp_path / "f.csv", rows), "ES")
    bars = found.bars
    assert found.report.path_known and bars.minute[0] == 9 * 60 + 30 and len(bars.stamp) == seconds // 60
    for m in range(len(bars.stamp)):
        o, c = walk[60 * m : 60 * m + 60], walk[60 * m + 1 : 60 * m + 61]
        high, low = np.maximum(o, c) + np.arange(60) % 2, np.minimum(o, c)
        assert (bars.open[m], bars.high[m], bars.low[m], bars.close[m]) == (o[0], high.max(), low.min(), c[-1])
        assert bars.volume[m] == 120
        if high.argmax() != low.argmin():
            assert bars.high_first[m] == (high.argmax() < low.argmin())


def _lines(change: Callable[[list[str]], list[str]]) -> Callable[[Bars], list[str]]:
    return lambda bars: change(files.firstrate(bars))


def _set(line: int, column: int, value: str) -> Callable[[Bars], list[str]]:
    def change(rows: list[str]) -> list[str]:
        cells = rows[line - 1].split(",")
        cells[column] = value
        return [*rows[: line - 1], ",".join(cells), *rows[line:]]

    return _lines(change)


@dataclass(frozen=True)
class Bad:
    """A file, the row that must be named, and words of the reason."""

    write: Callable[[Bars], list[str]]
    row: int
    reason: str
    options: dict[str, str] = field(default_factory=dict)
    bars: Bars = BARS


SHARED = "2022-01-03 09:20:00"  # of row 51
REFUSED = {
    "empty": Bad(lambda _: [], 1, "the file is empty"),
    "a header alone": Bad(lambda bars: files.databento(bars)[:1], 2, "ends after its header"),
    "a column is missing": Bad(
        lambda bars: [",".join(row.split(",")[:7] + row.split(",")[8:]) for row in files.databento(bars)],
        1,
        "no column close",
    ),
    "a row is cut off": Bad(_lines(lambda rows: [*rows[:60], rows[60][:25]]), 61, "expected 6 columns, got 2"),
    "no format at all": Bad(lambda _: ["the,quick,brown,fox"], 1, "expected the beginning of a file of databento"),
    "a price is not a number": Bad(_set(51, 3, "nan"), 51, "not all are numbers"),
    "a price is missing": Bad(_set(51, 3, ""), 51, "expected a number, got ''"),
    "a price is 0": Bad(_set(51, 3, "0"), 51, "not above 0"),
    "no volume": Bad(_set(51, 5, "nan"), 51, "volume nan is no volume"),
    "high below low": Bad(_set(51, 2, "4000"), 51, "the high 4000.0 is below the low"),
    "the close is out of range": Bad(_set(51, 4, "9000"), 51, "do not lie between"),
    "a price too large": Bad(_set(51, 2, "1e8"), 51, "above 10000000"),
    "no time at all": Bad(_set(1, 0, "2022-01-03 08:61:00"), 1, "expected a time, got '2022-01-03 08:61:00'"),
    "off the minute": Bad(_set(51, 0, "2022-01-03 09:20:07"), 51, "does not begin on the minute"),
    "a partial bar alone": Bad(lambda bars: files.tradingview(bars)[:2], 2, "it is the only bar, and partial"),
    "not a time": Bad(_set(51, 0, "2022-01-03 9:20:00"), 51, "expected a time like '2022-01-03 08:30:00'"),
    "no such day": Bad(_set(51, 0, "2022-02-30 09:20:00"), 51, "expected a time like"),
    "back in time": Bad(_set(51, 0, "2022-01-03 08:40:00"), 51, "earlier than the row before"),
    "two prices at one time": Bad(
        _lines(lambda rows: [*rows[:51], f"{SHARED},4000,4000,4000,4000,7", *rows[51:]]),
        52,
        "two bars of 2022-01-03 09:20",
    ),
    "adjusted by a ratio": Bad(
        lambda bars: [
            ",".join([(c := row.split(","))[0], *(f"{float(x) * 1.013:.4f}" for x in c[1:5]), c[5]])
            for row in files.firstrate(bars)
        ],
        1,
        "not all multiples of 0.25",
    ),
    "mixed contracts": Bad(files.firstrate, WIDEST_JUMP, "as if two contracts were mixed", bars=MIXED),
    "another contract": Bad(lambda bars: files.databento(bars, "NQH2"), 2, "'NQH2' is no month of ES"),
    "spreads alone": Bad(lambda bars: files.databento(bars, "ESH2-ESM2"), 2, "only spreads"),
    "Chicago read as New York": Bad(files.ninjatrader, 61, "begins at 08:30 in New York", {"zone": "America/New_York"}),
    "New York read as UTC": Bad(files.firstrate, 61, "begins at 04:30 in New York", {"zone": "UTC"}),
    "night and day read as UTC": Bad(
        files.firstrate, 1291, "the exchange is closed then", {"zone": "UTC"}, ROUND_THE_CLOCK
    ),
    "a time that no clock showed": Bad(
        lambda bars: ["2022-03-13 02:30:00,4000,4000,4000,4000,1"], 1, "never showed this time, or twice"
    ),
    "a zone of its own": Bad(files.yfinance, 4, "the times name their own zone", {"zone": "UTC"}),
    "no zone": Bad(files.ninjatrader, 1, "the times name no zone"),
    "bars of five minutes": Bad(_lines(lambda rows: rows[::5]), 2, "bars are 300 s apart"),
    "several tickers": Bad(
        lambda bars: [row.replace("Ticker,ES=F", "Ticker,NQ=F") for row in files.yfinance(bars)], 2, "several tickers"
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_file_is_refused_with_the_row_and_the_reason(case: str, tmp_path: Path):
    bad = REFUSED[case]
    path = write(tmp_path / "bad.txt", bad.write(bad.bars))
    with pytest.raises(DataError) as refused:
        importers.read(path, "ES", **bad.options)
    assert str(refused.value).startswith(f"{path}: row {bad.row}: "), refused.value
    assert bad.reason in str(refused.value)


def test_the_guards_let_the_sound_twin_of_every_bad_file_pass(tmp_path: Path):
    for name, bars in (("day", BARS), ("night", ROUND_THE_CLOCK)):
        found = importers.read(write(tmp_path / name, files.firstrate(bars)), "ES")
        same(found.bars, bars)
        assert found.report.busiest == "09:30" and found.report.warnings == []


def test_adjusted_prices_may_be_rounded_and_that_is_told(tmp_path: Path):
    path = write(tmp_path / "f.txt", REFUSED["adjusted by a ratio"].write(BARS))
    found = importers.read(path, "ES", off_grid="round")
    assert found.report.rounded > 0.9 * len(BARS.stamp)
    assert "between ticks" in found.report.text()
    np.testing.assert_array_equal(found.bars.close, np.rint(np.round(BARS.close * TICK * 1.013, 4) / TICK))


@pytest.mark.parametrize("name", VENDORS)
def test_whatever_byte_or_row_is_broken_a_file_is_read_or_refused(name: str, tmp_path: Path):
    """Never a traceback: bytes changed, rows cut, swapped, repeated and lost."""
    rng, vendor, path = np.random.default_rng(list(VENDORS).index(name)), VENDORS[name], tmp_path / "broken"
    rows = vendor.write(BARS.where(BARS.minute < 10 * 60))
    refused = 0
    for kind in ("byte", "byte", "cut", "swapped", "repeated", "lost", "head"):
        broken, (a, b) = list(rows), sorted(rng.integers(0, rng.choice([5, len(rows)]), 2))
        if kind == "byte":
            at = rng.integers(len(rows[a]))
            broken[a] = rows[a][:at] + chr(rng.integers(32, 127)) + rows[a][at + 1 :]
        broken = {
            "byte": broken,
            "cut": [*rows[:b], rows[b][: rng.integers(len(rows[b]))]],
            "swapped": [*rows[:a], rows[b], *rows[a + 1 : b], rows[a], *rows[b + 1 :]],
            "repeated": [*rows[:b], rows[a], *rows[b:]],
            "lost": rows[:a] + rows[b:],
            "head": rows[:a],
        }[kind]
        try:
            importers.read(write(path, broken), "ES", zone=vendor.zone).report.text()
        except DataError:
            refused += 1
    assert refused >= 2


@pytest.mark.parametrize("name", ("f.zip", "f.csv.gz", "f.csv"))
def test_damaged_files_are_named(name: str, tmp_path: Path):
    text = "\n".join(files.firstrate(BARS)).encode()
    damaged = {"f.zip": b"PK" + text, "f.csv.gz": gzip.compress(text)[:-200], "f.csv": b"\xff\xfe" + text}[name]
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(DataError, match=f"{name}: expected text, plain or packed, got a damaged file"):
        importers.read(tmp_path / name, "ES")


def test_parquet_without_its_reader_says_what_to_install(tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "f.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="pip install pyarrow"):
        importers.read(tmp_path / "f.parquet", "ES")


def test_doubtful_bars_may_be_kept_with_a_warning(tmp_path: Path):
    found = importers.read(write(tmp_path / "f.txt", files.firstrate(MIXED)), "ES", doubtful="warn")
    same(found.bars, MIXED)
    [warning] = found.report.warnings
    assert f"row {WIDEST_JUMP}: prices jump to and fro" in warning and warning in found.report.text()


def test_what_is_missing_is_told(tmp_path: Path):
    """A hole of twelve minutes, a day that ends at noon, one that ends at 09:55, and a day without any bar."""
    days = np.unique(BARS.date)
    hole = (BARS.date == days[1]) & (BARS.minute >= 600) & (BARS.minute < 612)
    noon = (BARS.date == days[3]) & (BARS.minute > 12 * 60)
    begun = (BARS.date == days[6]) & (BARS.minute > 9 * 60 + 55)
    bars = BARS.where(~hole & ~noon & ~begun & (BARS.date != days[5]))
    report = importers.read(write(tmp_path / "f.txt", files.firstrate(bars)), "ES").report
    assert report.missing_minutes == 12 and report.longest_gap == ("2022-01-04 09:59", 12)
    assert report.short_sessions == ["2022-01-06 until 12:00", "2022-01-11 until 09:55"]
    assert report.untraded == ["2022-01-11"] and report.missing_days == ["2022-01-10"]
    assert report.sessions == 7 and "not traded  2022-01-11" in report.text()


def test_bars_are_stored_and_read_back(tmp_path: Path):
    imported = importers.read(write(tmp_path / "f.txt", files.firstrate(BARS)), "ES")
    path = store.save(tmp_path / "bars", "ES", imported)
    found = store.read(tmp_path / "bars", ["ES"])["ES"]
    same(found, BARS)
    assert store.report(tmp_path / "bars", "ES")["bars"] == len(BARS.stamp)
    assert build.market({"ES": found}).length[0] == len(BARS.stamp)
    with pytest.raises(UsageError, match="no bars of NQ. There are ES"):
        store.read(tmp_path / "bars", ["NQ"])
    whole = path.read_bytes()
    for damaged in (whole[:-50], b"", b"\x80\x04K\x01."):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match="damaged"):
            store.read(tmp_path / "bars", ["ES"])


def test_a_stored_bar_out_of_its_range_is_refused(tmp_path: Path):
    imported = importers.read(write(tmp_path / "f.txt", files.firstrate(BARS)), "ES")
    high = imported.bars.high.copy()
    high[7] = imported.bars.low[7] - 1
    store.save(tmp_path, "ES", imported._replace(bars=imported.bars._replace(high=high)))
    with pytest.raises(DataError, match="bar 7 is out of order or outside its own range"):
        store.read(tmp_path, ["ES"])


ZONES = ("America/New_York", "America/Chicago", "Europe/Athens", "UTC+2", "America/New_York+7", "Etc/GMT+5")


@pytest.mark.parametrize("zone", ZONES)
def test_clocks_are_turned_back_and_forth(zone: str):
    utc = np.arange(1_640_000_000, 1_680_000_000, 3600)
    of = clock.Clock(zone)
    back, unclear = of.to_utc(of.of(utc))
    np.testing.assert_array_equal(back[~unclear], utc[~unclear])
    assert unclear.sum() <= 6


def test_unknown_zones_files_and_contracts_are_named(tmp_path: Path):
    path = write(tmp_path / "f.txt", files.firstrate(BARS))
    for expected, change in {
        "unknown zone 'Mars'": {"zone": "Mars"},
        "unknown contract 'SE'": {"contract": "SE"},
        "no such file": {"paths": tmp_path / "g.txt"},
        "at least one file": {"paths": []},
    }.items():
        with pytest.raises(UsageError, match=expected):
            importers.read(**{"paths": path, "contract": "ES", **change})
