"""Bars from memory, contracts of one's own, prices below 0, and bars added to others."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import trading_files as files
from trading_files import moments, points, some_bars, write

from crossfade.cli import main
from crossfade.envs.trading import bootstrap, build, definitions, facts, importers
from crossfade.envs.trading.bars import Bars, nearer_extreme_first
from crossfade.envs.trading.importers import store
from crossfade.envs.trading.sessions import within
from crossfade.errors import DataError, UsageError
from crossfade.systems.trading import data
from crossfade.systems.trading.config import TradingConfig

_WHOLE = some_bars()
BARS = _WHOLE.where((_WHOLE.minute >= 9 * 60 + 30) & (_WHOLE.minute < 10 * 60))
SIDES = ("open", "high", "low", "close")


def same(found: Bars, expected: Bars) -> None:
    for name in Bars._fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), name)


def arrays(bars: Bars) -> dict[str, np.ndarray]:
    """Times of New York without a zone, prices in points."""
    sides = dict(zip(SIDES, np.array(points(bars)).T, strict=True))
    return {"datetime": bars.stamp.astype("datetime64[m]"), **sides, "volume": bars.volume}


# Tables in memory

NY = {"zone": "America/New_York"}
KINDS = {
    "datetime64": (lambda of: of, NY),
    "datetime64 in nanoseconds": (lambda of: {**of, "datetime": of["datetime"].astype("datetime64[ns]")}, NY),
    "text": (lambda of: {**of, "datetime": np.datetime_as_string(of["datetime"], "s")}, NY),
    "datetimes with a zone": (lambda of: {**of, "datetime": moments(BARS)}, {}),
    "datetimes without one": (lambda of: {**of, "datetime": [at.replace(tzinfo=None) for at in moments(BARS)]}, NY),
    "seconds": (lambda of: {**of, "datetime": np.array([int(at.timestamp()) for at in moments(BARS)])}, {}),
    "seconds as floats": (lambda of: {**of, "datetime": np.array([at.timestamp() for at in moments(BARS)])}, {}),
    "names in capitals, lists": (lambda of: {name.title(): list(column) for name, column in of.items()}, NY),
    "last instead of close": (lambda of: {("last" if n == "close" else n): c for n, c in of.items()}, NY),
    "symbols": (lambda of: {**of, "symbol": ["ESH2"] * len(BARS.stamp)}, NY),
}


@pytest.mark.parametrize("name", KINDS)
def test_arrays_are_read_as_files_are(name: str):
    change, options = KINDS[name]
    found = importers.import_bars(change(arrays(BARS)), "ES", **options)
    same(found.bars, BARS)
    assert found.report.source == "table" and len(found.report.files[0].sha256) == 64


def test_a_data_frame_is_read_with_its_index():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(arrays(BARS))
    same(importers.import_bars(frame, "ES", **NY).bars, BARS)
    naive = frame.set_index("datetime")
    same(importers.import_bars(naive, "ES", **NY).bars, BARS)
    with pytest.raises(DataError, match="row 0: the times name no zone"):
        importers.import_bars(naive, "ES")
    aware = naive.tz_localize("America/New_York")
    for zone in ("America/New_York", "UTC", "Asia/Tokyo"):
        same(importers.import_bars(aware.tz_convert(zone), "ES").bars, BARS)
    same(importers.import_bars(aware.reset_index(), "ES").bars, BARS)
    levels = aware.set_axis(pandas.MultiIndex.from_product([aware.columns, ["ES=F"]]), axis=1)
    same(importers.import_bars(levels, "ES").bars, BARS)
    with pytest.raises(DataError, match="symbol 'ES=F' is no month of NQ"):
        importers.import_bars(levels, "NQ")


@pytest.mark.parametrize(
    "change, told",
    [
        ({"close": None}, "no column close; there are datetime, open, high, low, volume"),
        ({"volume": BARS.volume[:-1]}, "columns of lengths"),
        ({"open": np.array(["x"] * len(BARS.stamp))}, "column open: expected numbers"),
        ({"datetime": ["2022-01-03 09:30"] * 5 + ["now"] * (len(BARS.stamp) - 5)}, "row 5: expected a time like"),
        ({"datetime": np.full(len(BARS.stamp), 44_564.5)}, "row 0: expected a time"),
        ({"datetime": np.full(len(BARS.stamp), np.datetime64("NaT"))}, "row 0: expected a time"),
        ({"datetime": arrays(BARS)["datetime"] + np.timedelta64(500, "ms")}, "bars begin on whole seconds"),
        ({"low": np.where(np.arange(len(BARS.stamp)) == 7, np.nan, arrays(BARS)["low"])}, "row 7: open"),
        ({"Close": arrays(BARS)["close"]}, "a column is there twice"),
        ({"symbol": ["NQH2"] * len(BARS.stamp)}, "row 0: symbol 'NQH2' is no month of ES"),
    ],
)
def test_tables_that_cannot_be_trusted_are_refused(change: dict, told: str):
    table = {name: column for name, column in {**arrays(BARS), **change}.items() if column is not None}
    with pytest.raises(DataError, match=told):
        importers.import_bars(table, "ES", **NY)


# Contracts of one's own

FDAX = """
FDAX:
  tick: 0.5
  tick_value: 12.5
  currency: EUR
  session: {zone: Europe/Berlin, open: 09:00, close: 15:59}
  price: [3000, 40000]
  months: HMUZ
  commission: 1.5
"""


def yaml(tmp_path: Path, text: str = FDAX) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    return path


def german(days: int = 8) -> Bars:
    """Bars from 08:00 to 15:59 by the clock of Berlin, around 15000 points."""
    bars = some_bars(days)
    stamp = bars.stamp - 30
    return bars._replace(stamp=stamp, **{side: getattr(bars, side) + np.int32(10_000) for side in SIDES})


def text_of(bars: Bars) -> list[str]:
    """As a file with times of Berlin, and prices in halves."""
    sides = np.stack([getattr(bars, side) for side in SIDES], -1) * 0.5
    stamps = np.datetime_as_string(bars.stamp.astype("datetime64[m]"), "s")
    body = zip(stamps, sides.tolist(), bars.volume.tolist(), strict=True)
    return ["datetime,open,high,low,close,volume", *(f"{t},{','.join(map(str, s))},{v}" for t, s, v in body)]


def test_a_contract_of_ones_own_is_imported_stored_and_learned_from(tmp_path: Path):
    bars, folder = german(), tmp_path / "bars"
    bars = bars._replace(high_first=nearer_extreme_first(bars))
    path = write(tmp_path / "FDAX.csv", text_of(bars))
    words = ["--contract", "FDAX", "--to", str(folder), "--zone", "Europe/Berlin", "--quiet"]
    assert main(["data", "import", str(path), *words]) == 2  # not known yet
    assert main(["data", "import", str(path), *words, "--contracts", str(yaml(tmp_path))]) == 0
    same(store.read(folder, ["FDAX"])["FDAX"], bars)
    spec = store.spec(folder, "FDAX")
    assert spec == definitions.load(yaml(tmp_path))["FDAX"]
    assert (spec.tick, spec.tick_cents, spec.commission_cents, spec.currency) == (0.5, 1250, 150, "EUR")
    assert (spec.session.zone, spec.session.open, spec.session.close) == ("Europe/Berlin", 540, 959)

    config = TradingConfig(data=str(folder), markets=("FDAX",))
    market = data.market(config)
    assert market.tick_cents[0] == 1250 and market.commission_cents[0] == 150
    assert market.length[0] == len(within(bars, spec.session).stamp) < len(bars.stamp)
    assert market.minute[0][market.start[0][0] + 1] >= 540 and market.minute[0].max() == 959
    assert set(market.minute[0][: market.length[0]][market.last[0][: market.length[0]]]) == {959}
    since_open, to_close = market.features[0, :, 9:][market.minute[0] == 540].T
    np.testing.assert_array_equal(since_open, -0.5)  # the day begins at its own open
    np.testing.assert_array_equal(to_close, 1)
    shape = {fact.name: fact.value for fact in facts.facts("FDAX", bars, spec)}
    assert shape["open / lunch"] > 0 and shape["bars in order"] == 1  # in its own hours
    with pytest.raises(UsageError, match="unknown contract 'FDAX'"):
        TradingConfig(markets=("FDAX",))
    es = importers.read(write(tmp_path / "es.txt", files.firstrate(_WHOLE)), "ES")
    store.save(folder, "ES", es)
    with pytest.raises(UsageError, match="one currency in one account, got EUR, USD"):
        TradingConfig(data=str(folder), markets=("ES", "FDAX"))


def test_a_defined_contract_is_checked_like_any_other(tmp_path: Path):
    bars, own = german(), yaml(tmp_path)
    write(tmp_path / "f.csv", text_of(bars))
    read = lambda **options: importers.read(tmp_path / "f.csv", "FDAX", contracts=own, **options)
    assert read(zone="Europe/Berlin").report.clock == "Berlin"
    with pytest.raises(DataError, match="no bar lies in a session, 09:00 to 15:59 Berlin time"):
        importers.read(
            write(tmp_path / "g.csv", text_of(bars.where(bars.minute < 500))), "FDAX", contracts=own, zone="Asia/Tokyo"
        )
    own.write_text(FDAX.replace("[3000, 40000]", "[16000, 40000]"))
    with pytest.raises(DataError, match="those of FDAX lie between 16000 and 40000"):
        read(zone="Europe/Berlin")
    own.write_text(FDAX.replace("tick: 0.5", "tick: 2"))
    with pytest.raises(DataError, match="not all multiples of 2"):
        read(zone="Europe/Berlin")


@pytest.mark.parametrize(
    "change, told",
    [
        (("tick: 0.5", "tick: 0"), "tick"),
        (("tick: 0.5", "tikc: 0.5"), "Did you mean 'tick'"),
        (("  tick_value: 12.5\n", ""), "tick_value"),
        (("tick_value: 12.5", "tick_value: 12.505"), "tick_value: expected whole cents"),
        (("EUR", "euro"), "currency: expected three capital letters"),
        (("Europe/Berlin", "Europe/Bonn"), "session.zone: expected a zone such as Europe/Berlin, got 'Europe/Bonn'"),
        (("close: 15:59", "close: 09:10"), "session: expected an open from 01:00 on, and a close on the same day"),
        (("open: 09:00", "open: nine"), "session.open: expected a time such as '09:30', got 'nine'"),
        (("close: 15:59", "close: 99:29"), "session.close: expected a time"),
        (("[3000, 40000]", "[40000, 3000]"), "price: expected the lower bound first"),
        (("HMUZ", "HMUH"), "months: expected some of FGHJKMNQUVXZ, each once"),
        (("HMUZ", "ABC"), "months: expected some of"),
        (("FDAX:", "ES:"), "ES is built in"),
        (("FDAX:", "../x:"), "expected a name of up to 12 capital letters and digits"),
        ((FDAX, "FDAX: 3"), "expected `NAME:` and under it tick, tick_value"),
        ((FDAX, ""), "expected `NAME:` and under it tick, tick_value"),
        ((FDAX, "a: [1"), "expected YAML"),
    ],
)
def test_a_wrong_definition_is_refused_with_the_field(change: tuple[str, str], told: str, tmp_path: Path):
    with pytest.raises(UsageError) as refused:
        definitions.load(yaml(tmp_path, FDAX.replace(*change)))
    assert told in str(refused.value) and "mine.yaml" in str(refused.value)


def test_the_documented_contract_is_one(tmp_path: Path):
    page = (Path(__file__).parents[2] / "docs/trading_data.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    [(name, found)] = definitions.load(yaml(tmp_path, text)).items()
    assert (name, found.session.close, found.months) == ("FDAX", 17 * 60 + 29, "HMUZ")
    assert definitions.read(name, definitions.fields(found), "again") == found


def test_a_stored_definition_is_not_trusted(tmp_path: Path):
    import safetensors.numpy

    imported = importers.read(
        write(tmp_path / "f.csv", text_of(german())), "FDAX", contracts=yaml(tmp_path), zone="Europe/Berlin"
    )
    path = store.save(tmp_path, "FDAX", imported)
    columns = safetensors.numpy.load(path.read_bytes())
    for told, refused in (("", DataError), ("3", DataError), ('{"tick": -1}', UsageError)):
        path.write_bytes(safetensors.numpy.save(columns, {"contract": told}))
        with pytest.raises(refused, match=str(path)):
            store.spec(tmp_path, "FDAX")


# Prices below 0


def crude() -> Bars:
    """Days of bars in cents around 20 dollars. On 20 April 2020 the price falls to -40 in an hour and comes back."""
    bars = some_bars()
    days = np.busday_offset("2020-04-14", np.arange(8)).astype(np.int64)
    day = np.unique(bars.date, return_inverse=True)[1]
    fall = np.interp(bars.minute, [780, 840, 900, 960], [2000, -4000, -4000, 2000])
    close = (np.where(day == 4, fall, 2000) + bars.close % 5).astype(np.int32)
    opens = np.concatenate([close[:1], close[:-1]])
    sides = opens, np.maximum(opens, close) + np.int32(1), np.minimum(opens, close) - np.int32(1), close
    found = Bars(days[day] * 1440 + bars.minute, *sides, volume=bars.volume, high_first=bars.high_first)
    return found._replace(high_first=nearer_extreme_first(found))


def cents(bars: Bars) -> dict[str, np.ndarray]:
    sides = {side: getattr(bars, side) / 100 for side in SIDES}
    return {"datetime": bars.stamp.astype("datetime64[m]"), **sides, "volume": bars.volume}


def test_prices_below_0_are_taken_by_a_flag(tmp_path: Path):
    bars = crude()
    table = cents(bars)
    with pytest.raises(DataError, match="is not above 0.*--negative"):
        importers.import_bars(table, "CL", **NY)
    found = importers.import_bars(table, "CL", negative=True, **NY)
    same(found.bars, bars)
    assert found.report.negative == int((bars.low <= 0).sum()) > 60 and "at or below 0" in found.report.text()
    for features in ("sound", "seed8"):
        market = build.market({"CL": bars}, features)
        assert np.isfinite(market.features).all()
        np.testing.assert_array_equal(market.low[0], within(bars).low)
    assert all(np.isfinite(fact.value) or np.isnan(fact.value) for fact in facts.facts("CL", bars))
    with pytest.raises(UsageError, match="at or below 0 cannot be resampled"):
        bootstrap.bars({"CL": bars}, 5, 0)
    path = write(tmp_path / "cl.csv", _csv(table))
    words = [
        "data",
        "check",
        str(path),
        "--contract",
        "CL",
        "--zone",
        "America/New_York",
        "--doubtful",
        "warn",
        "--quiet",
    ]
    assert main(words) == 1 and main([*words, "--negative"]) == 0


def _csv(table: dict[str, np.ndarray]) -> list[str]:
    times = np.datetime_as_string(table["datetime"], "s")
    columns = [times, *(table[name] for name in (*SIDES, "volume"))]
    return ["datetime,open,high,low,close,volume", *(",".join(map(str, row)) for row in zip(*columns, strict=True))]


# Bars added to others


def put(tmp_path: Path, bars: Bars, *words: str, rows=files.firstrate) -> int:
    path = write(tmp_path / "more.txt", rows(bars))
    return main(["data", "import", str(path), "--contract", "ES", "--to", str(tmp_path / "bars"), "--quiet", *words])


def test_bars_that_follow_or_say_the_same_are_merged(tmp_path: Path, capsys):
    days = np.unique(BARS.date)
    early, late = BARS.where(BARS.date <= days[4]), BARS.where(BARS.date >= days[3])
    assert put(tmp_path, late) == 0
    assert put(tmp_path, early) == 2
    assert "--merge" in capsys.readouterr().err
    assert put(tmp_path, early, "--merge") == 0
    assert f"{len(BARS.stamp)} bars in all" in capsys.readouterr().out
    same(store.read(tmp_path / "bars", ["ES"])["ES"], BARS)
    report = store.report(tmp_path / "bars", "ES")
    assert report["bars"] == len(BARS.stamp) and report["sessions"] == 8 and len(report["files"]) == 2
    assert report["rows"] == len(early.stamp) + len(late.stamp)
    assert (report["first"], report["last"]) == ("2022-01-03 09:30", "2022-01-12 09:59")
    whole = (tmp_path / "bars/ES.safetensors").read_bytes()
    assert put(tmp_path, BARS.where(BARS.date == days[2]), "--merge") == 0  # nothing new
    assert (tmp_path / "bars/ES.safetensors").read_bytes() == whole
    assert put(tmp_path, BARS, "--merge", "--replace") == 2


def test_bars_that_differ_are_refused_with_the_first_row(tmp_path: Path, capsys):
    assert put(tmp_path, BARS) == 0
    before = [(tmp_path / f"bars/ES.{kind}").read_bytes() for kind in ("safetensors", "json")]
    volume = BARS.volume.copy()
    volume[[51, 80]] += 1
    assert put(tmp_path, BARS._replace(volume=volume), "--merge") == 1
    told = capsys.readouterr().err.replace("\n", " ")
    assert (
        "more.txt: row 52: at 2022-01-04 09:51 New York time it has" in told and "2 of 240 common bars differ" in told
    )
    assert str(BARS.volume[51]) in told and str(volume[51]) in told
    assert before == [(tmp_path / f"bars/ES.{kind}").read_bytes() for kind in ("safetensors", "json")]


def test_the_order_of_extremes_is_taken_from_whom_knows_it(tmp_path: Path):
    imported = importers.read(write(tmp_path / "f.txt", files.firstrate(BARS)), "ES")
    store.save(tmp_path, "ES", imported)
    known = imported.bars._replace(high_first=~imported.bars.high_first)
    more = imported._replace(bars=known, report=dataclasses.replace(imported.report, path_known=True))
    store.save(tmp_path, "ES", more, merge=True)
    same(store.read(tmp_path, ["ES"])["ES"], known)


def test_bars_that_do_not_meet_are_not_merged(tmp_path: Path):
    """As one half adjusted and the other one not: each passes by itself."""
    early = BARS.date <= np.unique(BARS.date)[3]
    low = BARS._replace(**{side: (0.7 * getattr(BARS, side)).astype(np.int32) for side in SIDES})
    halves = (
        importers.import_bars(arrays(BARS.where(early)), "ES", **NY),
        importers.import_bars(arrays(low.where(~early)), "ES", **NY),
    )
    store.save(tmp_path, "ES", halves[0])
    with pytest.raises(DataError, match="where both meet, at 2022-01-07 09:30 New York time, prices change by more"):
        store.save(tmp_path, "ES", halves[1], merge=True)


def test_bars_of_another_definition_are_not_merged(tmp_path: Path):
    rows = write(tmp_path / "f.csv", text_of(german()))
    take = lambda: importers.read(rows, "FDAX", contracts=yaml(tmp_path), zone="Europe/Berlin")
    store.save(tmp_path, "FDAX", take())
    (tmp_path / "mine.yaml").unlink()
    other = importers.read(rows, "FDAX", contracts=yaml(tmp_path, FDAX.replace("12.5", "25")), zone="Europe/Berlin")
    shorter = other._replace(bars=other.bars.where(other.bars.date > other.bars.date[0]))
    with pytest.raises(DataError, match="defined otherwise"):
        store.save(tmp_path, "FDAX", shorter, merge=True)
