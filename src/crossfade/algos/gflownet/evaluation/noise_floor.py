"""What a perfect sampler scores: the expectation of a histogram metric when n objects are drawn from the target itself.

A learned sampler whose metric stands at this floor cannot be told from a perfect one by n samples. The expectations
are exact: a metric that sums over cells needs only the binomial law of each cell's count.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float

SMOOTHING = 1e-8
"""What upstream adds to probabilities before it takes their logarithm."""


def total_variation_floor(p: Float[np.ndarray, " states"], n: int) -> float:
    """E[TV(p, histogram of n draws from p)], by de Moivre's mean deviation of the binomial law."""
    cell, multiplicity = _cells(p)
    above = np.floor(n * cell).astype(np.int64) + 1
    log_mean = np.log(above) + _log_binomial(_log_factorial(n), above, cell) + np.log1p(-cell)
    return float((multiplicity * np.exp(log_mean)).sum() / n)


def jsd_floor(p: Float[np.ndarray, " states"], n: int) -> float:
    """E[JSD(p, histogram of n draws from p)] in nats."""

    def part(cell: float, seen: np.ndarray) -> np.ndarray:
        from_seen = seen * np.log(np.where(seen > 0, 2 * seen / (cell + seen), 1))
        return (from_seen + cell * np.log(2 * cell / (cell + seen))) / 2

    return _expectation(p, n, part)


def kl_floor(p: Float[np.ndarray, " states"], n: int) -> float:
    """E[KL(p, histogram of n draws from p)] in nats, both smoothed as upstream does."""
    return _expectation(p, n, lambda cell, seen: cell * np.log((cell + SMOOTHING) / (seen + SMOOTHING)))


def coverage_ceiling(p: Float[np.ndarray, " states"], modes: Bool[np.ndarray, " states"], n: int) -> float:
    """The expected share of the modes that n draws from p meet at least once."""
    return float(-np.expm1(n * np.log1p(-np.minimum(p[modes], 1 - 1e-16))).mean())


def _expectation(p: np.ndarray, n: int, part: Callable[[float, np.ndarray], np.ndarray]) -> float:
    """The mean of a sum over cells of part(p, share of n draws); counts beyond 12 standard deviations are left out."""
    total, log_factorial = 0.0, _log_factorial(n)
    for cell, multiplicity in zip(*_cells(p), strict=True):
        reach = 12 * np.sqrt(n * cell) + 40
        count = np.arange(max(0, int(n * cell - reach)), min(n, int(n * cell + reach)) + 1)
        chance = np.exp(_log_binomial(log_factorial, count, cell))
        total += multiplicity * (chance * part(cell, count / n)).sum()
    return float(total)


def _cells(p: Float[np.ndarray, " states"]) -> tuple[np.ndarray, np.ndarray]:
    """The distinct probabilities strictly between 0 and 1 (others add nothing), and how often each occurs.

    Probabilities are told apart to 12 digits: equal rewards must not become many cells by their rounding.
    """
    some = p[(p > 0) & (p < 1)]
    _, first, multiplicity = np.unique(np.round(np.log(some), 12), return_index=True, return_counts=True)
    return some[first], multiplicity


def _log_factorial(n: int) -> np.ndarray:
    """log k! for k = 0 .. n."""
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])


def _log_binomial(log_factorial: np.ndarray, count: np.ndarray, p: np.ndarray | float) -> np.ndarray:
    """Log-probability of `count` hits in n tries, given log k! up to n."""
    n = len(log_factorial) - 1
    choose = log_factorial[n] - log_factorial[count] - log_factorial[n - count]
    return choose + count * np.log(p) + (n - count) * np.log1p(-p)
