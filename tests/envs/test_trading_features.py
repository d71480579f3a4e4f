"""Every feature is its formula, worked bar by bar in plain Python; the calendar of half-days, year by year."""

import math
from datetime import date

import numpy as np
import pytest

from crossfade.envs.trading import features, sessions, synthetic
from crossfade.envs.trading.bars import DAY, Bars
from crossfade.envs.trading.contracts import CONTRACTS
from crossfade.envs.trading.features import atr64, of_session, seed8, sound
from crossfade.envs.trading.sessions import CLOSE, EPOCH, OPEN

DAYS, PER_DAY, FIRST_DAY = 5, 40, 19_000
N = DAYS * PER_DAY


def made(seed: int = 0) -> Bars:
    """Five short sessions of a random walk, with gaps overnight and a bar without volume."""
    rng = np.random.default_rng(seed)
    stamp = np.concatenate([(FIRST_DAY + d) * DAY + OPEN + np.arange(PER_DAY) for d in range(DAYS)])
    close = 20_000 + np.cumsum(rng.integers(-6, 7, N)) + 90 * np.repeat(np.arange(DAYS) % 3, PER_DAY)
    open_ = close + rng.integers(-4, 5, N)
    high, low = np.maximum(open_, close) + rng.integers(0, 5, N), np.minimum(open_, close) - rng.integers(0, 5, N)
    volume = rng.integers(1, 900, N)
    volume[7] = 0
    prices = (column.astype(np.int32) for column in (open_, high, low, close))
    return Bars(stamp.astype(np.int64), *prices, volume.astype(np.int64), rng.random(N) < 0.5)


BARS = made()
OPENS, HIGHS, LOWS, CLOSES, VOLUMES = (
    column.tolist() for column in (BARS.open, BARS.high, BARS.low, BARS.close, BARS.volume)
)


def day(t: int) -> int:
    return t // PER_DAY


def true_range(t: int) -> int:
    """A session's first bar knows no close before it."""
    before = OPENS[t] if t % PER_DAY == 0 else CLOSES[t - 1]
    return max(HIGHS[t], before) - min(LOWS[t], before)


def atr(t: int) -> int:
    """Mean of the last 14 true ranges in 1/64 ticks, rounded down; the first stands for those before it."""
    return max(1, 64 * sum(true_range(max(k, 0)) for k in range(t - 13, t + 1)) // 14)


def mean(of, t: int, n: int) -> float:
    return sum(of(max(k, 0)) for k in range(t - n + 1, t + 1)) / n


def change(t: int) -> int:
    return CLOSES[t] - CLOSES[t - 1] if t else 0


def rsi(t: int) -> float:
    """100 - 100 / (1 + mean gain / mean loss) of the last 14 changes."""
    gain, loss = mean(lambda k: max(change(k), 0), t, 14), mean(lambda k: max(-change(k), 0), t, 14)
    return 100 - 100 / (1 + gain / (loss + 1e-8))


def ema(t: int, span: int) -> float:
    value = float(CLOSES[0])
    for k in range(1, t + 1):
        value += 2 / (span + 1) * (CLOSES[k] - value)
    return value


def vwap(t: int) -> float:
    """Of the session so far; a bar without volume counts as one contract."""
    bars = range(day(t) * PER_DAY, t + 1)
    weight = {k: max(VOLUMES[k], 1) for k in bars}
    return sum(weight[k] * (HIGHS[k] + LOWS[k] + CLOSES[k]) / 3 for k in bars) / sum(weight.values())


def volume_surprise(t: int) -> float:
    """Deviations of log(1 + volume) from its mean at this minute of the days before; 0 with fewer than two of them."""
    earlier = [math.log1p(VOLUMES[d * PER_DAY + t % PER_DAY]) for d in range(day(t))]
    if len(earlier) < 2:
        return 0.0
    middle = sum(earlier) / len(earlier)
    variance = sum((x - middle) ** 2 for x in earlier) / len(earlier)
    return (math.log1p(VOLUMES[t]) - middle) / math.sqrt(max(variance, 0.01))


def turn(t: int) -> float:
    return 2 * math.pi * (t % PER_DAY) / (CLOSE - OPEN)


SOUND = {
    "return": lambda t: (change(t) if t % PER_DAY else 0) / (atr(t) / 64),
    "range": lambda t: (HIGHS[t] - LOWS[t]) / (atr(t) / 64),
    "place in the range": lambda t: (CLOSES[t] - LOWS[t]) / max(HIGHS[t] - LOWS[t], 1) - 0.5,
    "volume surprise": volume_surprise,
    "distance to the mean of 20": lambda t: (CLOSES[t] - mean(lambda k: CLOSES[k], t, 20)) / (atr(t) / 64),
    "distance to the VWAP": lambda t: (CLOSES[t] - vwap(t)) / (atr(t) / 64),
    "RSI": lambda t: rsi(t) / 100 - 0.5,
    "distance to ten bars ago": lambda t: (CLOSES[t] - CLOSES[max(t - 10, 0)]) / (atr(t) / 64),
    "MACD": lambda t: (ema(t, 12) - ema(t, 26)) / (atr(t) / 64),
    "sine of the time": lambda t: math.sin(turn(t)),
    "cosine of the time": lambda t: math.cos(turn(t)),
}
SESSION = {
    **SOUND,
    "distance to the VWAP": lambda t: (CLOSES[t] - vwap(t)) / (atr(t) / 64 * math.sqrt(max(t % PER_DAY, 1))),
    "sine of the time": lambda t: t % PER_DAY / 449 - 0.5,
    "cosine of the time": lambda t: (449 - t % PER_DAY) / 449,
}
"""Of 09:30 to 16:59; the last two are now the time gone and the time left."""
TICK = 0.25
SEED8 = {
    "close": lambda t: CLOSES[t] * TICK,
    "volume": lambda t: VOLUMES[t],
    "SMA 5": lambda t: mean(lambda k: CLOSES[k] * TICK, t, 5),
    "SMA 20": lambda t: mean(lambda k: CLOSES[k] * TICK, t, 20),
    "RSI": lambda t: 100 - 100 / (1 + _gain(t) / (_loss(t) + 1e-8)),
    "MACD": lambda t: (ema(t, 12) - ema(t, 26)) * TICK,
    "momentum": lambda t: CLOSES[t] / CLOSES[max(t - 10, 0)],
    "ATR": lambda t: atr(t) / 64 * TICK,
    "hour": lambda t: (OPEN + t % PER_DAY) // 60 / 24,
    "minutes since the open": lambda t: t % PER_DAY,
    "minutes to the close": lambda t: CLOSE - OPEN - t % PER_DAY,
}


def _gain(t: int) -> float:
    return TICK * mean(lambda k: max(change(k), 0), t, 14)


def _loss(t: int) -> float:
    return TICK * mean(lambda k: max(-change(k), 0), t, 14)


def difference(found: np.ndarray, formula, clip: float = math.inf) -> float:
    """The largest, relative to the size of the expected numbers."""
    expected = np.clip([formula(t) for t in range(N)], -clip, clip)
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def test_the_average_true_range_is_exact():
    assert atr64(BARS).tolist() == [atr(t) for t in range(N)]


SCALE_FREE = {"session": (of_session, SESSION), "sound": (sound, SOUND)}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("which", SCALE_FREE)
def test_a_scale_free_feature_is_its_formula(which, name):
    made, formulas = SCALE_FREE[which]
    column = made(BARS, atr64(BARS))[:, list(SOUND).index(name)]
    assert difference(column, formulas[name], clip=10) < 1e-6
    assert column.std() > 0


def at(day: date, *times: tuple[int, int]) -> Bars:
    """Some bars of a day."""
    stamp = np.array([(day - EPOCH).days * DAY + 60 * hour + minute for hour, minute in times])
    price, one = np.full(len(times), 20_000, np.int32), np.ones(len(times), np.int64)
    return Bars(stamp, price, price + 2, price - 2, price, one, one > 0)


@pytest.mark.parametrize(
    ("day", "time", "gone", "left"),
    [
        (date(2024, 11, 27), (8, 30), -60 / 449, 1 + 60 / 449),
        (date(2024, 11, 27), (9, 30), 0, 1),
        (date(2024, 11, 27), (16, 59), 1, 0),
        (date(2024, 11, 29), (9, 30), 0, 209 / 449),
        (date(2024, 11, 29), (12, 59), 209 / 449, 0),
    ],
)
def test_the_open_and_the_close_of_days_and_half_days_differ(day, time, gone, left):
    bars = at(day, time)
    seen = of_session(bars, atr64(bars))[0, -2:]
    np.testing.assert_allclose(seen, [gone - 0.5, left], rtol=1e-6)


def test_a_session_elsewhere_has_its_own_length_and_no_half_days():
    bars = at(date(2024, 11, 29), (9, 0), (12, 0), (17, 30))
    seen = of_session(bars, atr64(bars), sessions.Session("Europe/Berlin", 9 * 60, 17 * 60 + 30))[:, -2:]
    np.testing.assert_allclose(seen, [[-0.5, 1], [180 / 510 - 0.5, 330 / 510], [0.5, 0]], rtol=1e-6)


@pytest.mark.parametrize("name", CONTRACTS)
def test_hardly_a_feature_of_a_traded_bar_is_clipped(name):
    """Before the open some look back over the night, to another price; `sound` clips a fifth at least."""
    bars = sessions.within(synthetic.bars((name,), 60)[name])
    seen = {of: np.abs(made(bars, atr64(bars))[bars.minute >= OPEN]) for of, (made, _) in SCALE_FREE.items()}
    assert (seen["session"] == 10).mean(0).max() < 0.005
    assert (seen["sound"] == 10).mean(0)[5] > 0.2


@pytest.mark.parametrize("name", SEED8)
def test_a_published_feature_is_its_formula(name):
    assert difference(seed8(BARS, TICK)[:, list(SEED8).index(name)], SEED8[name]) < 1e-6


def including_its_own_bar(monkeypatch):
    log_volume = np.log1p(np.array(VOLUMES, float)).reshape(DAYS, PER_DAY)
    seen = [log_volume[: d + 1] for d in range(DAYS)]
    surprise = [(x[-1] - x.mean(0)) / np.sqrt(np.maximum(x.var(0), 0.01)) * (d >= 2) for d, x in enumerate(seen)]
    monkeypatch.setattr(features, "_volume_surprise", lambda bars: np.concatenate(surprise))


def losses_over_13_bars(monkeypatch):
    before, averaged = features._before, features._mean
    change = lambda close: close - before(close, 1)
    gain, loss = lambda c: averaged(np.maximum(c, 0), 14), lambda c: averaged(np.maximum(-c, 0), 13)
    monkeypatch.setattr(
        features, "_rsi", lambda close: 100 - 100 / (1 + gain(change(close)) / (loss(change(close)) + 1e-8))
    )


def overnight_gap_in_the_range(monkeypatch):
    monkeypatch.setattr(features, "_first_of_session", lambda bars: np.arange(len(bars.stamp)) == 0)


def another_close(monkeypatch):
    monkeypatch.setattr(features, "scheduled_close", lambda bars, session: np.full(len(bars.stamp), CLOSE - 1))


FAULTS = {
    "cosine of the time": another_close,
    "volume surprise": including_its_own_bar,
    "RSI": losses_over_13_bars,
    "range": overnight_gap_in_the_range,
    "distance to the VWAP": overnight_gap_in_the_range,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_noticed(name, monkeypatch):
    FAULTS[name](monkeypatch)
    column = of_session(BARS, features.atr64(BARS))[:, list(SESSION).index(name)]
    assert difference(column, SESSION[name], clip=10) > 1e-4


# Days after Thanksgiving, eves of Independence Day and Christmas Eves on which the exchanges closed at 13:00.
HALF_DAYS = {
    2015: [(7, 3), (11, 27), (12, 24)],
    2016: [(11, 25)],
    2017: [(7, 3), (11, 24)],
    2018: [(7, 3), (11, 23), (12, 24)],
    2019: [(7, 3), (11, 29), (12, 24)],
    2020: [(7, 3), (11, 27), (12, 24)],
    2021: [(11, 26), (12, 24)],
    2022: [(11, 25)],
    2023: [(7, 3), (11, 24)],
    2024: [(7, 3), (11, 29), (12, 24)],
    2025: [(7, 3), (11, 28), (12, 24)],
}


@pytest.mark.parametrize("year", HALF_DAYS)
def test_half_days_are_those_of_the_calendar(year):
    assert sessions.half_days(year) == [date(year, *each) for each in HALF_DAYS[year]]
