"""Synthetic futures markets: minute bars that look like the real thing, and ones with a known truth for audits.

The default has the facts of index futures: volatility that clusters over days and minutes and rises after losses, a
U-shaped day, fat tails, news jumps, gaps over night, volume that follows both, one common factor. `martingale` is a
walk of single ticks without drift, so that no strategy can win, `jumping_martingale` one that also jumps between bars;
`planted` gives each day a drift whose sign the volume shows from the first bar on. `regime` adds hidden states that
last for a while: up, down, to and fro, shock. `bootstrap` is made elsewhere, of a user's own bars. The others break
something on purpose.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Int
from scipy.signal import lfilter

from ...errors import UsageError, nearest
from .bars import DAY, Bars
from .contracts import contract
from .sessions import CLOSE, EPOCH, OPEN, WARM_UP, half_days

Mode = Literal[
    "default",
    "martingale",
    "jumping_martingale",
    "planted",
    "gappy",
    "halfdays",
    "mixed_contracts",
    "regime",
    "bootstrap",
]
PER_DAY = CLOSE - WARM_UP + 1
SUB = 60  # moves within a minute
PLANTED_DRIFT = 0.5  # ticks per bar
OVERNIGHT = 0.25  # share of a day's variance


class Law(NamedTuple):
    """What distinguishes one market from another."""

    level: float  # points
    volatility: float  # per year
    common: float  # correlation with the common factor


LAWS = {
    "ES": Law(5000, 0.16, 0.98),
    "NQ": Law(18000, 0.22, 0.95),
    "YM": Law(39000, 0.15, 0.95),
    "RTY": Law(2000, 0.22, 0.87),
    "GC": Law(2300, 0.15, 0.10),
    "CL": Law(75, 0.35, 0.25),
}


class Regime(NamedTuple):
    """A state of the market `regime`."""

    drift: float  # per minute, in its standard deviations
    volatility: float
    minutes: float  # that it lasts, on average


REGIMES = (
    Regime(0.15, 1.0, 90),  # up
    Regime(-0.15, 1.0, 90),  # down
    Regime(0.0, 0.7, 120),  # to and fro
    Regime(0.0, 2.5, 15),  # shock
)
PARENTS = {"MES": "ES", "MNQ": "NQ", "MYM": "YM", "M2K": "RTY", "MGC": "GC", "MCL": "CL"}


def named(mode: str) -> Mode:
    """The market of that name, or an error with the nearest one."""
    if mode not in get_args(Mode):
        raise UsageError(f"unknown market {mode!r}.{nearest(mode, get_args(Mode))} Known: {', '.join(get_args(Mode))}.")
    return mode  # pyright: ignore[reportReturnType]


def bars(
    names: Sequence[str] = ("ES",), days: int = 250, seed: int = 0, mode: Mode = "default", start: date | None = None
) -> dict[str, Bars]:
    """Bars of the named contracts over `days` weekdays from `start`; micros follow the path of their parents."""
    if mode == "bootstrap":
        raise UsageError("market=bootstrap resamples imported bars: name their folder, data=bars.")
    if days < 1:
        raise UsageError(f"days: expected at least 1, got {days}.")
    for name in names:
        contract(name)
    dates = weekdays(start or date(2022, 1, 3), days)
    paths = {}
    for parent in dict.fromkeys(PARENTS.get(name, name) for name in names):
        own = seed, 1 + sorted(LAWS).index(parent)
        if mode in ("martingale", "jumping_martingale", "planted"):
            paths[parent] = _lattice(parent, dates, np.random.default_rng(own), mode)
        else:
            paths[parent] = _market(parent, dates, np.random.default_rng((seed, 0)), np.random.default_rng(own), mode)
    found = {name: paths[PARENTS.get(name, name)] for name in names}
    if mode == "halfdays":
        closed = np.array([(day - EPOCH).days for year in {d.year for d in dates} for day in half_days(year)])
        return {n: b.where(~(np.isin(b.date, closed) & (b.minute >= 13 * 60))) for n, b in found.items()}
    if mode == "gappy":
        rng = np.random.default_rng((seed, 99))
        return {n: b.where(rng.random(len(b.stamp)) > 0.03) for n, b in found.items()}
    return found


def planted_optimum(of: Bars) -> float:
    """Ticks that a trader who reads the signal makes at most, per day, without costs: the drift of every bar held.

    By optional stopping no stop or target changes the expectation of a position, so holding the day's side from the
    first fill to the close is best: a fill at the open of the session's first bar.
    """
    in_session = (of.minute >= OPEN).sum() / len(np.unique(of.date))
    return float(PLANTED_DRIFT * in_session)


def _market(name: str, dates: list[date], common: np.random.Generator, own: np.random.Generator, mode: str) -> Bars:
    law, days, n = LAWS[name], len(dates), len(dates) * PER_DAY
    tick = contract(name).tick
    daily = law.volatility / np.sqrt(252)
    shape = _day_shape()
    base = daily * np.sqrt((1 - OVERNIGHT) / PER_DAY)
    rho, rest = law.common, np.sqrt(1 - law.common**2)

    # Volatility and shocks are the common factor's, so that markets move together and calm down together.
    fast = np.asarray(lfilter([0.20], [1, -0.80], common.standard_normal(n)))
    middle = np.asarray(lfilter([0.05], [1, -0.985], common.standard_normal(n)))
    variance = 0.20**2 / (1 - 0.80**2) + 0.05**2 / (1 - 0.985**2)
    minute = base * np.tile(shape, days) * np.exp(fast + middle - variance)
    shock = _student(common, (n, SUB), 4.5)
    moves = (rho * shock + rest * _student(own, (n, SUB), 4.5)) * (minute / np.sqrt(SUB))[:, None]
    news = np.zeros((days, PER_DAY))
    for at, chance in ((OPEN, 0.10), (10 * 60, 0.25), (14 * 60, 0.10)):
        happens = common.random(days) < chance
        news[:, at - WARM_UP] = happens * np.clip(common.standard_t(3, days), -6, 6) * 4 * base
    moves[:, 0] += news.reshape(-1)
    if mode == "regime":
        drift, volatility = _regimes(common, n)
        moves = moves * volatility[:, None] + drift[:, None] * base / SUB
    moves = moves.reshape(days, PER_DAY, SUB)

    gap = _student(common, (days,), 4.0) * rho + _student(own, (days,), 4.0) * rest
    level, log_volatility, path = np.log(law.level), 0.0, np.empty_like(moves)
    shocks = common.standard_normal(days)
    fall = 0.0  # yesterday's return in its own standard deviations
    for d in range(days):
        log_volatility = 0.95 * log_volatility + 0.07 * shocks[d] + 0.12 * (max(-fall, 0) - 0.4)
        log_volatility = float(np.clip(log_volatility, -1.3, 1.3))
        scale = np.exp(log_volatility)
        start = level + daily * np.sqrt(OVERNIGHT) * scale * gap[d]
        path[d] = start + np.cumsum(moves[d] * scale).reshape(PER_DAY, SUB)
        fall = (path[d, -1, -1] - level) / (daily * scale)
        level = path[d, -1, -1]
    prices = np.exp(path).reshape(n, SUB)
    bounce = own.choice([-0.35, 0.35], prices.shape)
    ticks = np.rint(prices / tick + bounce).astype(np.int32)
    if mode == "mixed_contracts":
        other = own.random(n) < 0.5
        ticks = ticks + np.where(other, np.int32(0.01 * law.level / tick), np.int32(0))[:, None].astype(np.int32)
    size = np.abs(moves.sum(-1).reshape(-1)) / base
    volume = 1200 * np.tile(shape, days) ** 1.1 * (size + 0.2) ** 0.44 * np.exp(0.35 * own.standard_normal(n))
    return _bars(dates, ticks, volume)


def _lattice(name: str, dates: list[date], rng: np.random.Generator, mode: Mode) -> Bars:
    """Single ticks up and down: every level that is passed is touched, but for jumps between bars."""
    n = len(dates) * PER_DAY
    sign = rng.choice([-1, 1], len(dates))
    chance, planted = np.full(n, 0.5), mode == "planted"
    if planted:
        chance = 0.5 + 0.5 * np.repeat(sign, PER_DAY) * PLANTED_DRIFT / SUB
    ups = rng.random((n, SUB)) < chance[:, None]
    path = np.cumsum(np.where(ups, 1, -1).reshape(-1)).reshape(n, SUB)
    jump = np.zeros(n, np.int64)
    if mode == "jumping_martingale":
        jump = rng.integers(-40, 41, n) * (rng.random(n) < 0.1)
    path = path + np.cumsum(jump)[:, None]
    ticks = (path + int(LAWS[name].level / contract(name).tick)).astype(np.int32)
    volume = 1200.0 * np.tile(_day_shape(), len(dates)) * np.exp(0.1 * rng.standard_normal(n))
    if planted:
        volume *= np.exp(0.7 * np.repeat(sign, PER_DAY))
    found = _bars(dates, ticks, volume)
    opens = np.concatenate([ticks[:1, 0], ticks[:-1, -1]]) + jump.astype(np.int32)  # the walk goes on from the close
    walk = np.concatenate([opens[:, None], ticks], 1)
    first = walk.argmax(1) < walk.argmin(1)
    return found._replace(open=opens, high=walk.max(1), low=walk.min(1), high_first=first)


def _bars(dates: list[date], ticks: Int[np.ndarray, "bars sub"], volume: Float[np.ndarray, " bars"]) -> Bars:
    day = np.array([(d - EPOCH).days for d in dates], np.int64) * DAY
    stamp = (day[:, None] + WARM_UP + np.arange(PER_DAY)).reshape(-1)
    high_first = ticks.argmax(1) < ticks.argmin(1)
    sides = ticks[:, 0], ticks.max(1), ticks.min(1), ticks[:, -1]
    return Bars(stamp, *sides, np.rint(volume).astype(np.int64), high_first)


def _day_shape() -> Float[np.ndarray, " minutes"]:
    """How volatility moves through a day: high at the open, low at noon, higher at the close; mean square 1."""
    m = np.arange(PER_DAY) - (OPEN - WARM_UP)
    shape = 0.75 + 1.6 * np.exp(-np.maximum(m, 0) / 22) + 0.55 * np.exp(-(390 - np.minimum(m, 390)) / 18)
    shape = np.where(m < 0, 0.45, np.where(m > 390, 0.35, shape))
    return shape / np.sqrt((shape**2).mean())


def _regimes(rng: np.random.Generator, n: int) -> tuple[Float[np.ndarray, " bars"], Float[np.ndarray, " bars"]]:
    """Drift and volatility of a hidden state that lasts for a while and then is another one."""
    drift, volatility, at, now = np.empty(n), np.empty(n), 0, 0
    while at < n:
        now = (now + rng.integers(1, len(REGIMES))) % len(REGIMES)
        regime = REGIMES[now]
        until = at + int(rng.geometric(1 / regime.minutes))
        drift[at:until], volatility[at:until], at = regime.drift, regime.volatility, until
    return drift, volatility


def _student(rng: np.random.Generator, shape: tuple[int, ...], nu: float) -> np.ndarray:
    """Student's t with variance 1."""
    return rng.standard_t(nu, shape) / np.sqrt(nu / (nu - 2))


def weekdays(start: date, days: int) -> list[date]:
    """The first `days` weekdays from `start` on."""
    found, day = [], start
    while len(found) < days:
        if day.weekday() < 5:
            found.append(day)
        day += timedelta(days=1)
    return found
