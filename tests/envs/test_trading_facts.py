"""The figures are what they are called, and the synthetic market lies within their bands."""

import numpy as np
import pytest

from crossfade.envs.trading import facts, synthetic
from crossfade.envs.trading.bars import Bars
from crossfade.envs.trading.facts import LENGTH
from crossfade.envs.trading.sessions import OPEN

RNG = np.random.default_rng(0)
SHAPE = 500, LENGTH - 1


def test_kurtosis_and_variance_ratio_of_normal_returns():
    r = RNG.standard_normal(SHAPE)
    assert facts._kurtosis(r.reshape(-1)) == pytest.approx(3, abs=0.05)
    assert facts._variance_ratio(r, 5) == pytest.approx(1, abs=0.02)


def test_the_variance_ratio_of_a_moving_average():
    """Of e + a e', two minutes have 1 + a / (1 + a^2) of the variance of two single ones."""
    e = RNG.standard_normal((SHAPE[0], SHAPE[1] + 1))
    r = e[:, 1:] - 0.5 * e[:, :-1]
    assert facts._variance_ratio(r, 2) == pytest.approx(1 - 0.5 / 1.25, abs=0.01)
    assert facts._acf(r, 1) == pytest.approx(-0.4, abs=0.01)
    assert facts._acf(r, 2) == pytest.approx(0, abs=0.01)


def test_the_tail_index_of_a_pareto_law():
    assert facts._hill(RNG.pareto(3.5, SHAPE) + 1) == pytest.approx(3.5, abs=0.3)


def by_hand(closes: list[list[int]], opens: list[int]) -> Bars:
    """Days of the bars from 09:30 on with these closes; the first opens where it says."""
    close = np.array(closes, np.int32)
    stamp = (np.arange(len(closes))[:, None] * 1440 + OPEN + np.arange(close.shape[1])).reshape(-1)
    open_ = close.copy()
    open_[:, 1:], open_[:, 0] = close[:, :-1], opens
    sides = open_.reshape(-1), np.maximum(open_, close).reshape(-1), np.minimum(open_, close).reshape(-1)
    return Bars(stamp, *sides, close.reshape(-1), np.ones_like(stamp), np.zeros(len(stamp), bool))


def test_the_share_of_the_night_by_hand():
    """Nights of +-1 % and days of +-2 %: a fifth of the variance."""
    price, closes, opens = 100_000.0, [], []
    for night in (0.01, 0.01, -0.01, -0.01) * 50:
        opens.append(round(price * np.exp(night)))
        price = opens[-1] * np.exp(0.02 if len(opens) % 2 else -0.02)
        closes.append([opens[-1], round(price)])
        price = closes[-1][-1]
    assert facts._overnight(by_hand(closes, opens)) == pytest.approx(0.2, abs=0.01)


def test_leverage_needs_a_thousand_days_and_is_negative_where_losses_stir():
    calm = 0.001 * RNG.standard_normal(1500)
    r = calm.copy()
    for d in range(1, len(r)):
        r[d] = calm[d] * (3 if r[d - 1] < 0 else 1)
    price = np.rint(1e6 * np.exp(np.cumsum(r))).astype(int)
    bars = by_hand([[p, p] for p in price], price.tolist())
    assert facts._leverage(bars) < -0.02
    assert np.isnan(facts._leverage(bars.where(bars.date < 900)))


def held(found: list[facts.Fact]) -> dict[str, bool]:
    return {fact.name: fact.holds for fact in found}


@pytest.mark.parametrize("name", ("ES", "RTY"))
def test_the_default_market_lies_within_every_band(name: str):
    found = facts.facts(name, synthetic.bars((name,), 120)[name])
    assert all(fact.holds for fact in found), "\n".join(fact.text() for fact in found)


@pytest.mark.slow
@pytest.mark.parametrize("seed, name", list(enumerate(synthetic.LAWS)))
def test_over_four_years_it_has_the_leverage_of_losses_too(seed: int, name: str):
    found = facts.facts(name, synthetic.bars((name,), 1000, seed)[name])
    assert not any(np.isnan(fact.value) for fact in found)
    assert all(fact.holds for fact in found), "\n".join(fact.text() for fact in found)


@pytest.mark.parametrize(
    "mode, broken",
    {
        "martingale": ("kurtosis 1m", "|returns| acf 1", "open / lunch", "overnight share"),
        "mixed_contracts": ("variance ratio 5", "variance ratio 30", "Parkinson"),
    }.items(),
)
def test_markets_that_are_not_like_the_real_one_fall_out_of_the_bands(mode: synthetic.Mode, broken: tuple[str, ...]):
    found = held(facts.facts("ES", synthetic.bars(("ES",), 40, mode=mode)["ES"]))
    assert not any(found[name] for name in broken), found


def test_bars_outside_their_own_range_are_seen():
    bars = synthetic.bars(("ES",), 20)["ES"]
    high = bars.high.copy()
    high[500] = bars.low[500] - 1
    assert not held(facts.facts("ES", bars._replace(high=high)))["bars in order"]


def test_bars_that_are_missing_do_no_harm():
    found = facts.facts("ES", synthetic.bars(("ES",), 60, mode="gappy")["ES"])
    assert all(np.isfinite(fact.value) for fact in found if fact.name != "leverage")


def test_a_figure_that_needs_more_bars_is_left_open():
    """Three mornings without a move: nothing to measure, no warning, no verdict."""
    bars = by_hand([[100_000] * 40] * 3, [100_000] * 3)
    found = {fact.name: fact for fact in facts.facts("ES", bars)}
    assert np.isnan(found["kurtosis 1m"].value) and np.isnan(found["open / lunch"].value)
    assert found["tail index"].text().startswith("-") and found["tail index"].plain()["value"] is None
