"""The figures of an evaluation, each against a hand-worked case, a closed form, brute force or a published example."""

import math
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest

from crossfade.systems.trading.judging import statistics

WORKED = np.array([100.0, -50.0, -100.0, 200.0, 0.0, -30.0])
ROOT = math.sqrt(252)


@pytest.mark.parametrize(
    ("figure", "expected"),
    [
        # Mean 20; squared deviations 6400, 4900, 14400, 32400, 400, 2500 add up to 61000, over 5 is 12200.
        (statistics.sharpe, 20 / math.sqrt(12200) * ROOT),
        # Losses 50, 100, 30: squares add up to 13400, over 6 sessions.
        (statistics.sortino, 20 / math.sqrt(13400 / 6) * ROOT),
        # Path 0, 100, 50, -50, 150, 150, 120: from 100 to -50.
        (statistics.max_drawdown, 150),
        (statistics.calmar, 252 * 20 / 150),
        (statistics.drawdown_duration, 2),
        (statistics.profit_factor, 300 / 180),
        (statistics.sqn, math.sqrt(6) * 20 / math.sqrt(12200)),
        # 2 of 6 gain, 150 on average; the other 4 lose 45 on average.
        (statistics.kelly, 1 / 3 - 2 / 3 * 45 / 150),
    ],
)
def test_a_figure_is_what_it_is_by_hand(figure, expected):
    assert float(figure(WORKED)) == pytest.approx(expected, rel=1e-14)


def test_repeats_are_judged_one_by_one():
    repeats = np.stack([WORKED, -WORKED, np.roll(WORKED, 2)])
    for figure in (statistics.sharpe, statistics.sortino, statistics.calmar, statistics.max_drawdown):
        assert np.array_equal(figure(repeats), [figure(row) for row in repeats])


def test_drawdown_equals_brute_force_over_all_pairs():
    daily = np.random.default_rng(0).normal(size=80)
    path = np.concatenate([[0], np.cumsum(daily)])
    pairs = [path[i] - path[j] for i in range(81) for j in range(i, 81)]
    assert statistics.max_drawdown(daily) == max(pairs)
    under = [j - i for i in range(81) for j in range(i + 1, 81) if (path[i + 1 : j + 1] < path[: i + 1].max()).all()]
    assert statistics.drawdown_duration(daily) == max(under)


@pytest.mark.parametrize(
    ("figure", "values", "expected"),
    [
        (statistics.sharpe, [0.0, 0.0, 0.0], math.nan),
        (statistics.sharpe, [5.0], math.nan),
        (statistics.sortino, [1.0, 2.0], math.inf),
        (statistics.calmar, [-1.0, -1.0], -126.0),
        (statistics.profit_factor, [3.0, 1.0], math.inf),
        (statistics.profit_factor, [0.0, 0.0], math.nan),
        (statistics.sqn, [], math.nan),
        (statistics.kelly, [1.0], math.nan),
        (statistics.max_drawdown, [1.0, 2.0], 0.0),
    ],
)
def test_what_is_undefined_is_not_a_number_and_what_has_a_limit_is_infinite(figure, values, expected):
    assert float(figure(np.array(values))) == pytest.approx(expected, nan_ok=True)


def test_the_published_example_of_the_deflated_sharpe_ratio():
    """Bailey and Lopez de Prado 2014: ratio 2.5 a year of 250 days, 1250 days, skewness -3, kurtosis 10, 100 trials
    whose annual ratios have variance 1/2: the best of them is expected at 0.1132 a day, and the result is 0.9004."""
    of = statistics.Moments(2.5 / math.sqrt(250), -3.0, 10.0, 1250)
    assert statistics.expected_best(100, 0.5 / 250) == pytest.approx(0.1132, abs=5e-5)
    assert statistics.deflated_sharpe(of, 100, 0.5 / 250) == pytest.approx(0.9004, abs=5e-5)
    assert statistics.deflated_sharpe(of, 1, 0.5 / 250) == statistics.probabilistic_sharpe(of) > 0.99


def test_more_trials_deflate_more():
    of, chance = statistics.Moments(0.1, 0.0, 3.0, 500), 1 / 499
    found = [statistics.deflated_sharpe(of, trials, chance) for trials in (1, 2, 10, 100, 1000)]
    assert found == sorted(found, reverse=True) and found[0] > 0.98 and found[-1] < 0.2


@pytest.mark.parametrize("trials", [5, 20, 100])
def test_the_expected_best_is_near_the_mean_of_the_largest_of_normal_numbers(trials):
    largest = np.random.default_rng(0).normal(size=(20_000, trials)).max(1).mean()
    assert statistics.expected_best(trials, 4.0) == pytest.approx(2 * largest, rel=0.03)


def test_the_probabilistic_sharpe_ratio_is_uniform_when_the_truth_is_the_benchmark():
    """On 2000 histories of a true ratio of 0.4 the probability that it is above 0.4 must be as often below any level
    as the level says; with the wrong sign of the skewness it is not."""
    daily = np.random.default_rng(1).exponential(size=(2000, 500)) - 1 + 0.4  # skewness 2, kurtosis 9
    of = [statistics.moments(row) for row in daily]
    found = np.array([statistics.probabilistic_sharpe(one, 0.4) for one in of])
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert (found < level).mean() == pytest.approx(level, abs=0.03)
    wrong = np.array([statistics.probabilistic_sharpe(one._replace(skewness=-one.skewness), 0.4) for one in of])
    assert (wrong < 0.05).mean() < 0.01


def test_after_the_minimum_of_sessions_the_probability_is_the_confidence():
    of = statistics.Moments(0.08, -0.7, 5.0, 100)
    needed = statistics.minimum_sessions(of, 0.95)
    variance = 1 + 0.7 * 0.08 + 0.0064
    assert NormalDist().cdf(0.08 * math.sqrt(needed - 1) / math.sqrt(variance)) == pytest.approx(0.95)
    assert statistics.minimum_sessions(of._replace(sharpe=-0.1)) == math.inf


def overfitting_by_hand(daily: np.ndarray, blocks: int) -> float:
    """As the paper says it, half by half."""
    parts, over, halves = np.array_split(daily, blocks, axis=1), 0, list(combinations(range(blocks), blocks // 2))
    ratio = lambda chosen: [
        row.mean() / row.std() if row.std() else 0.0 for row in np.concatenate([parts[i] for i in chosen], 1)
    ]
    for half in halves:
        inside, outside = ratio(half), ratio([i for i in range(blocks) if i not in half])
        rank = sorted(outside).index(outside[int(np.argmax(inside))]) + 1
        over += rank / (len(daily) + 1) <= 0.5
    return over / len(halves)


def test_overfitting_is_what_the_paper_says_half_by_half():
    rng = np.random.default_rng(0)
    for trials in (2, 5, 8):
        daily = rng.normal(size=(trials, 60))
        daily[0] = 0 if trials == 5 else daily[0]
        assert statistics.overfitting(daily, 6) == pytest.approx(overfitting_by_hand(daily, 6))


def test_trials_of_noise_are_overfitted_half_of_the_time_and_a_true_one_never():
    rng = np.random.default_rng(1)
    noise = [statistics.overfitting(rng.normal(size=(10, 100))) for _ in range(100)]
    assert np.mean(noise) == pytest.approx(0.5, abs=0.08)
    good = rng.normal(size=(10, 100))
    good[3] += 1.0
    assert statistics.overfitting(good) == 0
    assert math.isnan(statistics.overfitting(good[:1])) and math.isnan(statistics.overfitting(good[:, :19]))
