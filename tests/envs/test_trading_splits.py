"""What is judged lies after what was learned from, and nothing of it is seen before."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from trading_files import firstrate, some_bars, write

from crossfade.cli import main
from crossfade.envs.trading import bootstrap, build, importers, splits, synthetic
from crossfade.envs.trading.importers import store
from crossfade.envs.trading.sessions import within
from crossfade.errors import UsageError
from crossfade.systems.trading import data, world
from crossfade.systems.trading.config import TradingConfig

BARS = some_bars(days=13)
SIDES = ("open", "high", "low", "close")


@given(st.integers(1, 400), st.integers(1, 12), st.integers(0, 5))
def test_walk_forward_judges_every_later_session_once_and_keeps_its_distance(sessions: int, folds: int, embargo: int):
    if sessions // (folds + 1) <= embargo:
        with pytest.raises(UsageError, match="fewer folds"):
            splits.walk_forward(sessions, folds, embargo)
        return
    found = splits.walk_forward(sessions, folds, embargo)
    assert [s for split in found for s in split.judge] == list(range(found[0].judge[0], sessions))
    for split in found:
        assert split.learn[0] == 0 and len(split.judge) >= 1
        assert split.judge[0] - split.learn[-1] - 1 == embargo
    assert max(len(s.judge) for s in found) - min(len(s.judge) for s in found) <= 1


def test_walk_forward_by_hand():
    found = splits.walk_forward(12, 3, embargo=1)
    assert found == [(range(2), range(3, 6)), (range(5), range(6, 9)), (range(8), range(9, 12))]
    assert splits.last_part(10, embargo=1) == (range(7), range(8, 10))
    with pytest.raises(UsageError, match="more than 2 sessions"):
        splits.last_part(2, embargo=1)


def days_of(market, of_bars: np.ndarray, m: int = 0) -> np.ndarray:
    """Days on which episodes of a market begin."""
    return np.unique(of_bars[market.start[m, : market.n_start[m]]])


def test_nothing_after_the_days_learned_from_changes_anything_they_show():
    """Every bar after them is changed: observations, masks and fills of the days that are learned from stay."""
    split = splits.walk_forward(12, 3)[1]
    days = build.session_days({"ES": BARS})
    assert len(days) == 13
    learn = days[split.learn]
    end = int(np.flatnonzero(BARS.date <= learn[-1])[-1])
    later = np.arange(len(BARS.stamp)) > end
    moved = {side: getattr(BARS, side) + np.where(later, 37, 0).astype(np.int32) for side in SIDES}
    changed = BARS._replace(**moved, volume=BARS.volume * np.where(later, 3, 1), high_first=BARS.high_first ^ later)
    before, after = (build.market({"ES": bars}, days=learn) for bars in (BARS, changed))
    for name, column in before._asdict().items():
        of_bars = column.shape[1:2] == BARS.stamp.shape
        shown = np.s_[:, : end + 1] if of_bars else ...
        np.testing.assert_array_equal(column[shown], getattr(after, name)[shown], name)
    assert (before.close != after.close).any() and before.last[0, end]
    np.testing.assert_array_equal(days_of(before, BARS.date), learn)


def test_contracts_of_other_lengths_and_calendars_are_matched_by_date():
    """NQ begins three days later and lacks a day: both learn from and are judged by the same dates."""
    days = np.unique(BARS.date)
    nq = synthetic.bars(("NQ",), 13)["NQ"]
    nq = nq.where((nq.date >= days[3]) & (nq.date != days[6]) & (nq.minute < 15 * 60))
    bars = {"ES": BARS, "NQ": nq}
    known = build.session_days(bars)
    split = splits.walk_forward(len(known), 2)[1]
    for wanted in (known[split.learn], known[split.judge]):
        market = build.market(bars, days=wanted)
        for m, of in enumerate(bars.values()):
            np.testing.assert_array_equal(days_of(market, within(of).date, m), np.intersect1d(wanted, of.date))
    with pytest.raises(UsageError, match="NQ: no bar .* none of its 2 sessions wanted"):
        build.market(bars, days=days[:2])


def test_a_config_learns_from_imported_bars_and_is_judged_by_later_ones(tmp_path: Path):
    store.save(tmp_path, "ES", importers.read(write(tmp_path / "f.txt", firstrate(BARS)), "ES"))
    config = TradingConfig(data=str(tmp_path))
    days = build.session_days({"ES": BARS})
    [of_bars] = data.dates(config)
    np.testing.assert_array_equal(days_of(data.market(config), of_bars), days[:9])
    np.testing.assert_array_equal(days_of(data.held_out(config), of_bars), days[10:])
    assert len(world.sessions(data.held_out(config))[0]) == 3
    judged = []
    for fold in range(3):
        chosen = replace(config, folds=3, fold=fold, embargo=2)
        learned, held_out = (days_of(side(chosen), of_bars) for side in (data.market, data.held_out))
        assert len(days[(days > learned[-1]) & (days < held_out[0])]) == 2
        judged += held_out.tolist()
    assert judged == days[3:].tolist()
    with pytest.raises(UsageError, match="two markets"):
        data.market(replace(config, market="planted"))
    with pytest.raises(UsageError, match="no bars of NQ"):
        data.market(replace(config, markets=("NQ",)))


def test_bars_that_are_imported_anew_are_read_anew(tmp_path: Path):
    config = TradingConfig(data=str(tmp_path))
    for bars in (BARS, some_bars(days=8)):
        store.save(tmp_path, "ES", importers.read(write(tmp_path / "f.txt", firstrate(bars)), "ES"), replace=True)
        assert data.market(config).length[0] == len(bars.stamp)


def test_synthetic_days_are_split_too_and_the_same_bars_are_shared():
    config = TradingConfig(days=9, folds=2, fold=1)
    learn, judge = data.market(config), data.held_out(config)
    [of_bars] = data.dates(config)
    assert days_of(learn, of_bars)[-1] < days_of(judge, of_bars)[0]
    np.testing.assert_array_equal(learn.close, judge.close)


def test_days_resampled_without_a_splice_are_days_that_happened():
    """Blocks that never end go through the bars from some day on, to the tick."""
    found = bootstrap.bars({"ES": BARS}, days=5, seed=3, block=1e12)["ES"]
    per_day = synthetic.PER_DAY
    [start] = [d for d in range(13) if BARS.volume[d * per_day] == found.volume[0]]
    again = (np.arange(5 * per_day) + start * per_day) % len(BARS.stamp)
    before_the_end = again >= again[0]
    for side in (*SIDES, "volume", "high_first"):
        old = getattr(BARS, side)[again][before_the_end]
        np.testing.assert_array_equal(getattr(found, side)[before_the_end], old, side)


def test_resampled_days_keep_the_time_of_day_and_the_company_of_contracts():
    both = synthetic.bars(("ES", "MES", "NQ"), 13)
    found = bootstrap.bars(both, days=40, seed=0)
    es, nq = found["ES"], found["NQ"]
    np.testing.assert_array_equal(es.close, found["MES"].close)
    old, new = (np.corrcoef(*(np.diff(np.log(b[n].close)) for n in ("ES", "NQ")))[0, 1] for b in (both, found))
    assert new == pytest.approx(old, abs=0.03)
    grid = both["ES"].volume.reshape(13, -1)
    source = [np.flatnonzero(grid[:, m % 510] == v) for m, v in enumerate(es.volume)]
    assert all(len(days) for days in source)
    assert (es.low <= np.minimum(es.open, es.close)).all() and (nq.high >= np.maximum(nq.open, nq.close)).all()
    sizes = [np.log(b["ES"].close).reshape(-1, 510)[:, 1:] for b in (both, found)]
    spread = [np.diff(size, axis=1).std() for size in sizes]
    assert spread[1] == pytest.approx(spread[0], rel=0.15)


def test_a_config_may_learn_from_resampled_days_and_is_judged_by_real_ones(tmp_path: Path):
    store.save(tmp_path, "ES", importers.read(write(tmp_path / "f.txt", firstrate(BARS)), "ES"))
    config = TradingConfig(data=str(tmp_path), days=20)
    resampled = replace(config, market="bootstrap")
    assert data.market(resampled).length[0] == 20 * synthetic.PER_DAY
    for of, expected in zip(data.held_out(resampled), data.held_out(config), strict=True):
        np.testing.assert_array_equal(of, expected)
    with pytest.raises(UsageError, match="name their folder"):
        data.market(replace(resampled, data=None))


def test_a_run_goes_on_only_with_the_bars_it_has_learned_from(tmp_path: Path, capsys):
    bars, runs = tmp_path / "bars", tmp_path / "runs"
    read = lambda of: importers.read(write(tmp_path / "f.txt", firstrate(of)), "ES")
    keep = lambda of: store.save(bars, "ES", read(of), replace=True)
    small = ["mode=torch", "n_envs=4", "n_steps=4", "hidden=4", "env.window=2", "minibatches=1", "epochs=1"]
    keep(BARS)
    assert main(["train", "trading", f"data={bars}", *small, "steps=1", "--runs-dir", str(runs), "--quiet"]) == 0
    [run] = (runs / "trading").iterdir()
    go_on = ["train", "--resume", str(run), "steps=2", "schedule=2", "--quiet"]
    keep(BARS._replace(volume=BARS.volume + 1))
    assert main(go_on) == 1
    assert "ES.safetensors: expected what the run has read so far" in capsys.readouterr().err
    keep(BARS)
    assert main(go_on) == 0
