"""What the synthetic markets promise beside the stylised facts, which have tests of their own."""

from datetime import date

import numpy as np
import pytest

from crossfade.envs.trading import build, synthetic
from crossfade.envs.trading.sessions import CLOSE, OPEN, WARM_UP
from crossfade.errors import UsageError


def test_one_seed_gives_one_market_and_contracts_do_not_depend_on_their_company():
    both, alone = synthetic.bars(("ES", "NQ"), 4, 7), synthetic.bars(("NQ",), 4, 7)
    for a, b in zip(both["NQ"], alone["NQ"], strict=True):
        np.testing.assert_array_equal(a, b)
    assert (synthetic.bars(("NQ",), 4, 8)["NQ"].close != alone["NQ"].close).any()


def test_markets_move_together_and_micros_with_their_parents():
    bars = synthetic.bars(("ES", "NQ", "YM", "RTY", "GC", "MES"), 12)
    minute = {name: np.diff(np.log(of.close)) for name, of in bars.items()}
    correlation = lambda a, b: np.corrcoef(minute[a], minute[b])[0, 1]
    assert correlation("ES", "NQ") == pytest.approx(0.98 * 0.95, abs=0.03)
    assert correlation("ES", "RTY") == pytest.approx(0.98 * 0.87, abs=0.03)
    assert correlation("ES", "GC") == pytest.approx(0.10, abs=0.05)
    np.testing.assert_array_equal(bars["ES"].close, bars["MES"].close)


def test_days_are_weekdays_and_whole():
    bars = synthetic.bars(("ES",), 12)["ES"]
    days = np.unique(bars.date)
    assert len(days) == 12 and ((days + 3) % 7 < 5).all()
    np.testing.assert_array_equal(bars.minute, np.tile(np.arange(WARM_UP, CLOSE + 1), 12))


def test_the_walk_of_the_martingale_goes_by_single_ticks_and_only_the_jumping_one_jumps():
    calm, jumping = (synthetic.bars(("ES",), 3, mode=mode)["ES"] for mode in ("martingale", "jumping_martingale"))
    np.testing.assert_array_equal(calm.open[1:], calm.close[:-1])
    gap = np.abs(jumping.open[1:] - jumping.close[:-1])
    assert 0.05 < (gap > 0).mean() < 0.15 and gap.max() <= 40


def test_half_days_end_early_and_gaps_are_holes():
    autumn = synthetic.bars(("ES",), 15, mode="halfdays", start=date(2022, 11, 14))["ES"]
    ends = {int(day): int(autumn.minute[autumn.date == day].max()) for day in np.unique(autumn.date)}
    early = [day for day, end in ends.items() if end < CLOSE]
    assert [str(np.datetime64(day, "D")) for day in early] == ["2022-11-25"]
    gappy = synthetic.bars(("ES",), 10, mode="gappy")["ES"]
    assert 0.01 < 1 - len(gappy.stamp) / (10 * synthetic.PER_DAY) < 0.05
    assert build.market({"ES": gappy}).length[0] == len(gappy.stamp)


def test_the_planted_drift_has_the_sign_that_the_volume_shows():
    bars = synthetic.bars(("ES",), 40, mode="planted")["ES"]
    loud, drift = [], []
    for day in np.unique(bars.date):
        of = bars.where((bars.date == day) & (bars.minute >= OPEN))
        loud.append(of.volume.mean())
        drift.append(of.close[-1] - of.open[0])
    sign = np.sign(np.log(loud) - np.mean(np.log(loud)))
    assert np.mean(sign * np.array(drift)) == pytest.approx(synthetic.PLANTED_DRIFT * 450, rel=0.3)


def test_regimes_last_as_long_as_they_say():
    """Every state but the one before is as likely to follow, so each is entered a quarter of the times."""
    drift, volatility = synthetic._regimes(np.random.default_rng(0), 400_000)
    minutes = np.array([regime.minutes for regime in synthetic.REGIMES])
    for regime, share in zip(synthetic.REGIMES, minutes / minutes.sum(), strict=True):
        within = (drift == regime.drift) & (volatility == regime.volatility)
        entered = (np.diff(within.astype(int)) == 1).sum()
        assert within.mean() == pytest.approx(share, rel=0.1)
        assert within.sum() / entered == pytest.approx(regime.minutes, rel=0.1)
    assert synthetic.bars(("ES",), 2, mode="regime")["ES"].close.min() > 0


def test_unknown_markets_and_no_days_are_refused():
    with pytest.raises(UsageError, match="Did you mean 'planted'"):
        synthetic.named("plante")
    with pytest.raises(UsageError, match="at least 1"):
        synthetic.bars(("ES",), 0)
