"""Files that look sound and are not: each was once imported as other bars than it holds, without a word."""

from pathlib import Path

import numpy as np
import pytest
import trading_files as files
from trading_files import TICK, some_bars, write

from crossfade.envs.trading import importers
from crossfade.envs.trading.bars import Bars, nearer_extreme_first
from crossfade.envs.trading.importers import levels, symbols
from crossfade.errors import DataError

WHOLE = some_bars()
BARS = WHOLE.where((WHOLE.minute >= 9 * 60 + 30) & (WHOLE.minute < 10 * 60))
HEADER = files.databento(BARS)[:1]


def same(found: Bars, expected: Bars) -> None:
    for name in Bars._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


def shifted(bars: Bars, ticks: int, **more: np.ndarray) -> Bars:
    """The same bars at another price."""
    sides = {side: getattr(bars, side) + np.int32(ticks) for side in ("open", "high", "low", "close")}
    return bars._replace(**sides, **more)


def refused(path: Path, contract: str = "ES", **options) -> str:
    with pytest.raises(DataError) as error:
        importers.read(path, contract, **options)
    return str(error.value)


# Month codes


def decades(digits: int) -> tuple[list[str], Bars]:
    """Two mornings of March from 2011 to 2023, each year's June month, which comes again after ten years."""
    rows, parts = [], []
    for year in range(2011, 2024):
        first = np.datetime64(f"{year}-03-01") + (6 - (np.datetime64(f"{year}-03-01").astype(int) + 3) % 7 + 1) % 7
        day = int(first.astype(int))  # a Monday
        of = BARS.where(BARS.date <= np.unique(BARS.date)[1])
        low, high = levels.LEVELS["ES"][year]
        level = (low + high) / 2 / TICK / of.close[0]
        sides = {side: np.rint(getattr(of, side) * level).astype(np.int32) for side in ("open", "high", "low", "close")}
        of = of._replace(**sides)
        of = of._replace(high_first=nearer_extreme_first(of))
        parts.append(of._replace(stamp=of.stamp + (day - of.date[0]) * 1440))
        rows += files.databento(parts[-1], f"ESM{str(year)[-digits:]}")[1:]
    return HEADER + rows, Bars(*(np.concatenate(column) for column in zip(*parts, strict=True)))


@pytest.mark.parametrize("digits", (1, 2))
def test_month_codes_that_come_again_after_ten_years_are_other_months(digits: int, tmp_path: Path):
    rows, bars = decades(digits)
    found = importers.read(write(tmp_path / "f.csv", rows), "ES")
    same(found.bars, bars)
    assert found.report.last.startswith("2023-") and len(found.report.rolls) == 12 and found.report.other_months == 0


def test_an_instrument_number_that_is_given_again_is_another_month(tmp_path: Path):
    rows, bars = decades(1)
    numbered = [row.rsplit(",", 1)[0].replace(",42,", f",{1 + int(row[3]) % 5},") for row in rows[1:]]
    found = importers.read(write(tmp_path / "f.csv", [rows[0].rsplit(",", 1)[0], *numbered]), "ES")
    same(found.bars, bars)


def test_a_month_is_never_left_for_an_earlier_one_and_lost_sessions_are_doubted(tmp_path: Path):
    """June is held from the third day on, but the file has only March on the last: nothing to trade that day."""
    days = np.unique(BARS.date)
    march = BARS.where(BARS.date != days[4])
    june = shifted(BARS, 40, volume=9 * BARS.volume).where((BARS.date >= days[1]) & (BARS.date < days[-1]))
    rows = sorted(files.databento(march, "ESH2")[1:] + files.databento(june, "ESM2")[1:])
    path = write(tmp_path / "f.csv", HEADER + rows)
    told = refused(path)
    assert "1 session has no bar of the month that is held, ESM2" in told and "--doubtful warn" in told
    found = importers.read(path, "ES", doubtful="warn")
    assert found.bars.date[-1] == days[-2] and "no bar of the month" in found.report.text()


def test_bars_after_the_month_has_expired_are_refused(tmp_path: Path):
    told = refused(write(tmp_path / "f.csv", files.databento(BARS, "ESZ21")))
    assert "row 2: " in told and "ESZ21 had expired" in told


def test_months_and_a_continuous_series_are_not_mixed(tmp_path: Path):
    day = np.unique(BARS.date)[4]
    rows = files.databento(BARS.where(BARS.date < day)) + files.databento(BARS.where(BARS.date >= day), "ES.c.0")[1:]
    assert f"row {2 + 30 * 4}: 'ES.c.0' is a continuous series, rows before are of single months" in refused(
        write(tmp_path / "f.csv", rows)
    )


@pytest.mark.parametrize(
    "symbol, kind",
    {
        "ESH2": "month",
        "ESH22": "month",
        "ESH2022": "month",
        "ES 03-22": "month",
        "@ESH22": "month",
        "ESH22.CME": "month",
        "ESH22-CME": "month",
        "ESH22_FUT_CME": "month",
        "ES": "continuous",
        "@ES": "continuous",
        "ES.c.0": "continuous",
        "ES=F": "continuous",
        "ES1!": "continuous",
        "CME_MINI:ES1!": "continuous",
        "ES ##-##": "continuous",
        "ES.FUT": "parent",
        "ESH2-ESM2": "spread",
        "ES:BF H2-M2-U2": "spread",
        "UD:1V: GN 12": "spread",
        "ESF2": "foreign",
        "MESH2": "foreign",
        "NQ=F": "foreign",
        "NQ 03-22": "foreign",
        "": "none",
    }.items(),
)
def test_symbols_are_told_apart(symbol: str, kind: str):
    assert symbols.read(symbol, "ES", "HMUZ").kind == kind


# Spreads and jumps


def by_instrument(bars: Bars, number: int) -> list[str]:
    return [row.rsplit(",", 1)[0].replace(",42,", f",{number},") for row in files.databento(bars)[1:]]


def test_a_spread_without_a_symbol_does_not_become_the_contract(tmp_path: Path):
    """At 60 points, with the most volume of the fourth day, so that it would be traded on the fifth."""
    days = np.unique(BARS.date)
    spread = shifted(BARS, 240 - int(BARS.low.min()), volume=np.where(BARS.date == days[3], BARS.volume * 50, 1))
    rows = sorted(by_instrument(BARS, 1) + by_instrument(spread, 2))
    path = write(tmp_path / "f.csv", [HEADER[0].rsplit(",", 1)[0], *rows])
    told = refused(path)
    assert f"row {2 + 60 * 4}: " in told or f"row {3 + 60 * 4}: " in told
    assert "change by" in told and "a spread" in told


@pytest.mark.parametrize("at", (40, len(BARS.stamp) - 1))
def test_a_jump_beyond_what_the_contract_can_do_is_doubted(at: int, tmp_path: Path):
    """Also in the very last bar, which nothing follows to give it away."""
    sides = {side: getattr(BARS, side).copy() for side in ("open", "high", "low", "close")}
    for column in sides.values():
        column[at] -= 5064 * 3
    path = write(tmp_path / "f.txt", files.firstrate(BARS._replace(**sides)))
    assert f"row {at + 1}: prices change by" in refused(path)
    assert importers.read(path, "ES", doubtful="warn").report.warnings


def test_a_crash_over_night_is_no_jump(tmp_path: Path):
    """Seven per cent, the limit of the exchange at night."""
    days = np.unique(BARS.date)
    fallen = shifted(BARS, -int(0.07 * BARS.close[0])).where(BARS.date >= days[3])
    parts = zip(BARS.where(BARS.date < days[3]), fallen, strict=True)
    bars = Bars(*(np.concatenate(column) for column in parts))
    same(importers.read(write(tmp_path / "f.txt", files.firstrate(bars)), "ES").bars, bars)


# Stamps


def late(bars: Bars) -> Bars:
    return bars._replace(stamp=bars.stamp + 1)


def test_times_of_the_end_are_noticed_by_the_edges_of_sessions(tmp_path: Path):
    path = write(tmp_path / "f.txt", files.firstrate(late(BARS)))
    told = refused(path)
    assert "row 1: " in told and "times of the end of bars" in told and "--stamp end" in told
    found = importers.read(path, "ES", stamp="end")
    same(found.bars, BARS)
    assert found.report.stamp == "end"
    assert importers.read(path, "ES", stamp="start").bars.minute[0] == 9 * 60 + 31  # as told, with a warning
    assert "edges" in importers.read(path, "ES", stamp="start").report.text()


def test_a_format_that_tells_is_believed_where_the_edges_agree(tmp_path: Path):
    ends = write(tmp_path / "end.txt", files.ninjatrader(BARS))
    same(importers.read(ends, "ES", zone="America/Chicago").bars, BARS)
    starts = write(tmp_path / "start.txt", files.ninjatrader(BARS._replace(stamp=BARS.stamp - 1)))
    told = refused(starts, zone="America/Chicago")
    assert "times of the start of bars" in told and "--stamp start" in told


def test_without_edges_the_format_decides(tmp_path: Path):
    day = BARS.where(BARS.date == BARS.date[0])
    found = importers.read(write(tmp_path / "f.txt", files.ninjatrader(day)), "ES", zone="America/Chicago")
    same(found.bars, day)


# Ticker and price


def test_the_ticker_in_the_header_must_be_the_contract(tmp_path: Path):
    three = write(tmp_path / "three.csv", [row.replace("ES=F", "NQ=F") for row in files.yfinance(BARS)])
    assert "row 2: the header says 'NQ=F', which is no ES" in refused(three)
    words = [f"\"('{word}', 'NQ=F')\"" for word in ("Close", "High", "Low", "Open", "Volume")]
    tuples = write(tmp_path / "tuples.csv", [",".join(["Datetime", *words]), *files.yfinance(BARS)[3:]])
    assert "row 1: the header says 'NQ=F', which is no ES" in refused(tuples)


@pytest.mark.parametrize("name", ("NQ=F.csv", "NQ 03-22.Last.txt", "NQH2.csv", "NQ_1min.txt", "CME_MINI_NQ1!, 1.csv"))
def test_a_file_called_after_another_contract_is_doubted(name: str, tmp_path: Path):
    path = write(tmp_path / name, files.firstrate(BARS))
    assert "the file is called after NQ" in refused(path)
    assert "called after NQ" in importers.read(path, "ES", doubtful="warn").report.text()


@pytest.mark.parametrize("name", ("ES=F.csv", "ES_vs_NQ.csv", "equinq.csv", "ES 03-22.Last.txt"))
def test_other_names_are_no_reason_to_doubt(name: str, tmp_path: Path):
    same(importers.read(write(tmp_path / name, files.firstrate(BARS)), "ES").bars, BARS)


def test_prices_of_another_contract_are_doubted(tmp_path: Path):
    """NQ stood at 15000 when ES stood at 5000."""
    path = write(tmp_path / "f.txt", files.firstrate(shifted(BARS, 40_000)))
    told = refused(path)
    assert "row 1: prices of 2022 are around 14" in told and "ES traded between 3502 and 4818" in told
    assert "NQ" in told
    assert refused(write(tmp_path / "g.txt", files.firstrate(BARS)), "NQ").count("NQ traded between 10440 and 16659")
    same(importers.read(path, "NQ").bars, shifted(BARS, 40_000))


# The last row


def test_a_volume_that_may_be_cut_off_is_left_out_and_told(tmp_path: Path):
    text = "\n".join(files.firstrate(BARS))
    path = tmp_path / "f.txt"
    path.write_text(text[:-1])
    found = importers.read(path, "ES")
    same(found.bars, BARS.where(np.arange(len(BARS.stamp)) < len(BARS.stamp) - 1))
    assert found.report.cut == 1 and "no end of line" in found.report.text()
    path.write_text(text)
    same(importers.read(path, "ES", last_row="keep").bars, BARS)
    path.write_text(text + "\n")
    same(importers.read(path, "ES").bars, BARS)


def test_a_last_column_that_is_not_read_may_be_cut_off(tmp_path: Path):
    [header, *rows] = files.databento(BARS)
    more = [header + ",remark", *(f"{row},nothing at all" for row in rows)]
    (tmp_path / "f.csv").write_text("\n".join(more)[:-4])
    found = importers.read(tmp_path / "f.csv", "ES")
    same(found.bars, BARS)
    assert found.report.cut == 0


def test_a_row_with_more_columns_than_the_others_is_refused(tmp_path: Path):
    """As thousands separators without quotes make them."""
    rows = files.firstrate(BARS)
    rows[50] = rows[50].replace(",", ",4,", 1)
    assert "row 51: expected 6 columns, got 7" in refused(write(tmp_path / "f.txt", rows))
