"""Intervals of figures by the stationary bootstrap over sessions. They see numbers and know nothing of trading.

Sessions are drawn in blocks, and a figure is computed again on each draw. Two intervals can be read from that:

- `percentile`, the middle 95 % of the repeats. With few sessions it is too short: the spread of the repeats is that of
  the sessions there are, and those may by chance have little.
- `studentised`, the bootstrap-t (Götze and Künsch 1996): repeats are measured in units of their own standard errors,
  and such distances are laid off in the standard error of the figure. It needs a figure that has one: a mean, or the
  Sharpe ratio.

benchmarks/interval_coverage.py measures how often each of them covers the truth (docs/trading_evaluation.md).
"""

import math

import numpy as np
from jaxtyping import Float, Int, Real

from ....random import random_numpy as random
from .statistics import YEAR, Daily, Figure, sharpe

LEVEL = 0.95
ROUNDING = 1e-12  # of the largest result: a smaller standard error is one of rounding, not of spread
Drawn = Int[np.ndarray, "resamples sessions"]
Repeats = Float[np.ndarray, " resamples"]


def block_length(sessions: int) -> float:
    """Mean length of the bootstrap's blocks: the usual n^(1/3)."""
    return float(max(1, round(sessions ** (1 / 3))))


def stationary_bootstrap(
    key: np.ndarray, sessions: int, length: int, repeats: int, block: float
) -> Int[np.ndarray, "repeats length"]:
    """Which session stands where in each repeat (Politis and Romano 1994).

    A block begins anywhere and runs on, from the last session to the first again; each day it ends with probability
    1 / block. Sessions that follow each other so stay together, and what they have in common is kept.
    """
    jump, place = random.uniform(key, (2, repeats, length), "float64")
    fresh = jump < 1 / block
    fresh[:, 0] = True
    start = np.minimum((place * sessions).astype(np.int64), sessions - 1)
    since = np.arange(length) - np.maximum.accumulate(np.where(fresh, np.arange(length), 0), 1)
    begun = np.take_along_axis(start, np.arange(length) - since, 1)
    return (begun + since) % sessions


def mean_interval(
    daily: Float[np.ndarray, " sessions"], drawn: Drawn, block: float, level: float = LEVEL
) -> tuple[float, float]:
    """Of the mean."""
    again = daily[drawn]
    return studentised(daily.mean(), again.mean(-1), standard_error(daily, block), drawn_error(again, drawn), level)


def sharpe_interval(
    daily: Float[np.ndarray, " sessions"], drawn: Drawn, block: float, level: float = LEVEL
) -> tuple[float, float]:
    """Of the annual Sharpe ratio.

    A session moves the ratio of n by (z - SR (z^2 - 1) / 2) / n, z its standardised result and SR the ratio of one
    session, so the ratio's error is that of a mean of such numbers. Of independent sessions it is the root of
    (1 - skewness SR + (kurtosis - 1) / 4 SR^2) / n, the formula of Lo (2002) and Mertens (2002).
    """
    again = daily[drawn]
    error, errors = standard_error(_moves(daily), block), drawn_error(_moves(again), drawn)
    year = math.sqrt(YEAR)
    return studentised(sharpe(daily), np.asarray(sharpe(again)), year * error, year * errors, level)


def standard_error(daily: Float[np.ndarray, " sessions"], block: float) -> float:
    """Of the mean: the deviation that the stationary bootstrap gives it, without drawing. NaN without spread.

    Lemma 1 of Politis and Romano 1994: Var = (C(0) + 2 sum_i (1 - i/n) q^i C(i)) / n, with q = 1 - 1/block and C the
    circular autocovariance, i = 1 .. n - 1.
    """
    n, centred = len(daily), daily - daily.mean()
    lag = np.arange(n)
    weights = np.where(lag, 2.0, 1.0) * (1 - lag / n) * (1 - 1 / block) ** lag
    covariance = np.fft.ifft(np.abs(np.fft.fft(centred)) ** 2).real / n
    return float(_known(np.sqrt(np.maximum(weights @ covariance / n, 0.0)), daily))


def drawn_error(again: Float[np.ndarray, "resamples sessions"], drawn: Drawn) -> Repeats:
    """Of the mean of each repeat, from the blocks it was drawn in: sqrt(sum over blocks of (sum of r - mean)^2) / n.

    The formula for the sessions themselves would not do: where two blocks meet, what sessions have in common ends.
    """
    repeats, n = again.shape
    begins = np.diff(drawn, axis=1, prepend=drawn[:, :1]) != 1
    begins &= (drawn != 0) | (np.roll(drawn, 1, 1) != n - 1)  # from the last session a block runs on to the first
    begins[:, 0] = True
    at = np.flatnonzero(begins)
    sums = np.add.reduceat((again - again.mean(-1, keepdims=True)).ravel(), at)
    return _known(np.sqrt(np.bincount(at // n, sums**2, repeats)) / n, again)


def studentised(
    value: Figure, repeats: Repeats, error: float, errors: Repeats, level: float = LEVEL
) -> tuple[float, float]:
    """The bootstrap-t interval: value - q error, q the quantiles of (repeat - value) / its error.

    NaN where there is no error to be known, or where so many repeats have none that a tail could consist of them.
    """
    if math.isnan(error) or np.isnan(errors).mean() > (1 - level) / 2:
        return math.nan, math.nan
    low, high = percentile((repeats - value) / errors, level)
    return float(value - high * error), float(value - low * error)


def percentile(values: Real[np.ndarray, " repeats"], level: float = LEVEL) -> tuple[float, float]:
    """The middle `level` of the repeats that are defined; NaN where fewer than half are."""
    known = values[~np.isnan(values)]
    if 2 * len(known) < len(values):
        return math.nan, math.nan
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2], method="nearest")  # infinite ones included
    return float(low), float(high)


def _moves(daily: Daily) -> Daily:
    """By how much each session moves the Sharpe ratio of one session, times their number; NaN without spread."""
    centre, spread = daily.mean(-1, keepdims=True), _known(daily.std(-1), daily)[..., None]
    z = (daily - centre) / spread
    return z - centre / spread * (z**2 - 1) / 2


def _known(error: Figure, daily: Daily) -> Float[np.ndarray, "*repeats"]:
    """The error, or NaN where it is one of rounding."""
    return np.where(error > ROUNDING * np.abs(daily).max(-1), error, math.nan)
