"""The figures by which results are judged, each as the textbook has it. They see numbers and know nothing of trading.

`daily` are results of sessions in order of time, one after the other along the last axis; leading axes are repeats. An
undefined figure (no spread, no loss, no trade) is NaN, or infinite where that is its limit; it is never replaced.
"""

import math
from itertools import combinations
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

YEAR = 252  # sessions
EULER = 0.5772156649015329

Daily = Float[np.ndarray, "*repeats sessions"]
Figure = Float[np.ndarray, "*repeats"] | np.float64


def volatility(daily: Daily) -> Figure:
    """Annualised: standard deviation x sqrt(252)."""
    return _deviation(daily) * math.sqrt(YEAR)


def sharpe(daily: Daily) -> Figure:
    """Annualised: mean / standard deviation x sqrt(252). Futures need no financing: nothing is taken off the mean."""
    return _ratio(daily.mean(-1), _deviation(daily)) * math.sqrt(YEAR)


def sortino(daily: Daily) -> Figure:
    """Annualised: mean / sqrt(mean of min(result, 0)^2) x sqrt(252)."""
    return _ratio(daily.mean(-1), np.sqrt((np.minimum(daily, 0.0) ** 2).mean(-1))) * math.sqrt(YEAR)


def calmar(daily: Daily) -> Figure:
    """What a year of such sessions brings, 252 x mean, over the largest drawdown."""
    return _ratio(YEAR * daily.mean(-1), max_drawdown(daily))


def drawdown(daily: Daily) -> Float[np.ndarray, "*repeats path"]:
    """How far the sum of results is below its highest so far, before the first session and after each."""
    path = np.concatenate([np.zeros((*daily.shape[:-1], 1)), np.cumsum(daily, -1)], -1)
    return np.maximum.accumulate(path, -1) - path


def max_drawdown(daily: Daily) -> Figure:
    """The largest fall of the sum of results from its highest point."""
    return drawdown(daily).max(-1)


def drawdown_duration(daily: Daily) -> Int[np.ndarray, "*repeats"] | np.int64:
    """The longest time under water in sessions: from a high to its recovery, or to the end."""
    place = np.arange(daily.shape[-1] + 1)
    high = np.maximum.accumulate(np.where(drawdown(daily) > 0, 0, place), -1)  # where the last one was
    return (place - high).max(-1)


def profit_factor(results: Daily) -> Figure:
    """Sum of gains over sum of losses."""
    return _ratio(np.maximum(results, 0.0).sum(-1), np.maximum(-results, 0.0).sum(-1))


def sqn(results: Float[np.ndarray, " trades"]) -> float:
    """System quality number: sqrt(trades) x mean / standard deviation of their results."""
    if len(results) < 2:
        return math.nan
    return float(_ratio(results.mean(), _deviation(results)) * math.sqrt(len(results)))


def kelly(results: Float[np.ndarray, " trades"]) -> float:
    """Kelly's share for bets of two outcomes, the average gain and the average loss: w - (1 - w) loss / gain."""
    gains, losses = results[results > 0], -results[results <= 0]
    if not len(gains) or not len(losses):
        return math.nan
    won = len(gains) / len(results)
    return float(won - (1 - won) * losses.mean() / gains.mean())


class Moments(NamedTuple):
    """What the distribution of the Sharpe ratio depends on; the ratio is that of one session, not annualised."""

    sharpe: float
    skewness: float
    kurtosis: float  # 3 for a normal distribution
    sessions: int


def moments(daily: Float[np.ndarray, " sessions"]) -> Moments:
    centred = daily - daily.mean()
    sd = math.sqrt(float((centred**2).mean()))
    if sd == 0:
        return Moments(math.nan, math.nan, math.nan, len(daily))
    third, fourth = float((centred**3).mean()) / sd**3, float((centred**4).mean()) / sd**4
    return Moments(float(sharpe(daily)) / math.sqrt(YEAR), third, fourth, len(daily))


def probabilistic_sharpe(of: Moments, benchmark: float = 0.0) -> float:
    """Probability that the true ratio is above `benchmark` (of one session), Bailey and Lopez de Prado 2012:

    Phi((SR - benchmark) sqrt(n - 1) / sqrt(1 - skewness SR + (kurtosis - 1) / 4 SR^2)).
    """
    variance = 1 - of.skewness * of.sharpe + (of.kurtosis - 1) / 4 * of.sharpe**2
    if not variance > 0:
        return math.nan
    return NormalDist().cdf((of.sharpe - benchmark) * math.sqrt(of.sessions - 1) / math.sqrt(variance))


def expected_best(trials: int, variance: float) -> float:
    """The Sharpe ratio that the best of so many worthless trials shows on average (Bailey and Lopez de Prado 2014):

    sqrt(variance) ((1 - g) Phi^-1(1 - 1 / trials) + g Phi^-1(1 - 1 / (trials e))), g Euler's constant;
    `variance` is that of the trials' ratios.
    """
    if trials < 2:
        return 0.0
    quantile = NormalDist().inv_cdf
    return math.sqrt(variance) * ((1 - EULER) * quantile(1 - 1 / trials) + EULER * quantile(1 - 1 / (trials * math.e)))


def deflated_sharpe(of: Moments, trials: int, variance: float) -> float:
    """Probability that the true ratio is above 0 after the best of so many trials was picked."""
    return probabilistic_sharpe(of, expected_best(trials, variance))


def minimum_sessions(of: Moments, confidence: float = 0.95) -> float:
    """Sessions after which this ratio would be above 0 with such confidence; infinite for one that is not above 0."""
    if not of.sharpe > 0:
        return math.nan if math.isnan(of.sharpe) else math.inf
    variance = 1 - of.skewness * of.sharpe + (of.kurtosis - 1) / 4 * of.sharpe**2
    return 1 + variance * (NormalDist().inv_cdf(confidence) / of.sharpe) ** 2


def overfitting(daily: Float[np.ndarray, "trials sessions"], blocks: int = 10) -> float:
    """Probability of backtest overfitting (Bailey, Borwein, Lopez de Prado and Zhu 2015), by their cross-validation.

    Sessions are cut into blocks; for every half of the blocks the trial that is best there, by Sharpe ratio, is looked
    up in the other half: the share of halves whose best is there no better than the median. A trial that never traded
    has the ratio 0. NaN with fewer than two trials, or fewer than two sessions for each block.
    """
    trials, sessions = daily.shape
    if trials < 2 or sessions < 2 * blocks:
        return math.nan
    edges = [sessions * i // blocks for i in range(blocks)]
    size = np.diff([*edges, sessions])
    sums, squares = (np.add.reduceat(power, edges, axis=1) for power in (daily, daily**2))
    halves = np.array([[i in half for i in range(blocks)] for half in combinations(range(blocks), blocks // 2)])

    def ratios(chosen: np.ndarray) -> np.ndarray:
        n = chosen @ size
        mean = sums @ chosen.T / n
        spread = np.sqrt(np.maximum(squares @ chosen.T / n - mean**2, 0.0))
        return np.divide(mean, spread, out=np.zeros_like(mean), where=spread > 0)

    inside, outside = ratios(halves), ratios(~halves)
    best = np.take_along_axis(outside, inside.argmax(0)[None], 0)
    below = (outside < best).sum(0) + (outside == best).sum(0) / 2 + 0.5  # its rank, from 1; equal ones share theirs
    return float((below / (trials + 1) <= 0.5).mean())


def _deviation(values: np.ndarray) -> np.ndarray:
    """Sample standard deviation; NaN of fewer than two."""
    enough = values.shape[-1] > 1
    return np.asarray(values.std(-1, ddof=1) if enough else np.full(values.shape[:-1], math.nan))


def _ratio(above: Figure, below: Figure) -> Figure:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(above) / np.asarray(below)
