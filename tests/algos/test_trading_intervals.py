"""Intervals by the bootstrap: variance by the closed form, errors by hand, and how often they cover the truth."""

import math
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from crossfade.random import random_numpy as random
from crossfade.systems.trading.judging import intervals, statistics

MEASURED = Path(__file__).parents[2] / "benchmarks" / "interval_coverage.py"


@pytest.mark.parametrize("block", [1.0, 4.0, 12.0])
def test_the_bootstrap_of_a_mean_has_the_variance_that_politis_and_romano_derived(block):
    """Their lemma 1: Var(mean) = (R(0) + 2 sum_i b(i) R(i)) / n with b(i) = (1 - i/n) q^i + i/n q^(n - i),
    q = 1 - 1/block and R(i) the autocovariance of the data."""
    n, rng = 40, np.random.default_rng(2)
    daily = np.convolve(rng.normal(size=n + 5), np.ones(6) / 6, "valid")  # neighbours have much in common
    centred, q = daily - daily.mean(), 1 - 1 / block
    r = [(centred[: n - i] * centred[i:]).sum() / n for i in range(n)]
    b = [(1 - i / n) * q**i + i / n * q ** (n - i) for i in range(n)]
    expected = (r[0] + 2 * sum(b[i] * r[i] for i in range(1, n))) / n
    drawn = intervals.stationary_bootstrap(random.key(0), n, n, 20_000, block)
    means = daily[drawn].mean(1)
    assert means.var() == pytest.approx(expected, rel=0.04)
    assert means.mean() == pytest.approx(daily.mean(), abs=4 * math.sqrt(expected / 20_000))
    if block > 1:  # drawing sessions one by one would show another spread
        assert abs(r[0] / n / expected - 1) > 0.15
    assert intervals.standard_error(daily, block) == pytest.approx(math.sqrt(expected), rel=1e-12)


def test_blocks_run_on_and_are_as_long_as_asked():
    drawn = intervals.stationary_bootstrap(random.key(3), 50, 400, 500, 5.0)
    ended = (np.diff(drawn, axis=1) % 50 != 1).mean()
    assert ended == pytest.approx(1 / 5 * (1 - 1 / 50), abs=0.003)
    assert drawn.min() == 0 and drawn.max() == 49
    assert np.array_equal(drawn, intervals.stationary_bootstrap(random.key(3), 50, 400, 500, 5.0))


def test_an_interval_of_figures_that_are_mostly_undefined_is_undefined():
    assert all(map(math.isnan, intervals.percentile(np.array([math.nan, math.nan, 1.0]))))
    assert intervals.percentile(np.array([math.nan, *np.arange(201.0)])) == (5.0, 195.0)


def test_the_error_of_a_repeat_is_that_of_its_blocks_by_hand():
    """Sessions 3 4 0 | 2 | 2 and 1 2 3 4 0, of 5: the last runs on to the first, and a session may follow itself."""
    daily = np.array([1.0, 2.0, 4.0, 8.0, 10.0])
    drawn = np.array([[3, 4, 0, 2, 2], [1, 2, 3, 4, 0]])
    # 8 10 1 4 4 have mean 5.4: blocks deviate by 19 - 16.2, 4 - 5.4 and 4 - 5.4. A single block deviates by nothing.
    expected = math.sqrt(2.8**2 + 1.4**2 + 1.4**2) / 5
    first, second = intervals.drawn_error(daily[drawn], drawn)
    assert first == pytest.approx(expected, rel=1e-12) and math.isnan(second)


def test_the_bootstrap_t_lays_off_the_distances_of_repeats_in_errors():
    repeats, errors = np.array([8.0, 9.0, 10.0, 12.0, 14.0]), np.array([1.0, 2.0, 1.0, 1.0, 2.0])
    # Distances from 10 are -2, -0.5, 0, 2, 2; the extremes are turned round the value.
    assert intervals.studentised(np.float64(10.0), repeats, 3.0, errors) == (10 - 2 * 3, 10 + 2 * 3)
    one_sided = intervals.studentised(np.float64(10.0), repeats[:3], 3.0, errors[:3])
    assert one_sided == (10.0, 16.0), "repeats that fall short of the figure say that the truth lies above it"


def test_the_error_of_the_sharpe_ratio_is_that_of_mertens_where_sessions_are_independent():
    daily = np.random.default_rng(3).gamma(2.0, size=50) - 1.5
    of = statistics.moments(daily)
    ratio = daily.mean() / daily.std()
    variance = 1 - of.skewness * ratio + (of.kurtosis - 1) / 4 * ratio**2
    error = intervals.standard_error(intervals._moves(daily), 1.0)
    assert error == pytest.approx(math.sqrt(variance / 50), rel=1e-12)


@pytest.mark.parametrize("law", ["normal", "Student t4"])
def test_the_bootstrap_t_covers_the_truth_where_percentiles_fall_short(law):
    """300 histories of 40 days: 92 % less two and a half standard errors, 1.6 % each, and 2 % more than percentiles."""
    spec = spec_from_file_location("interval_coverage", MEASURED)
    assert spec is not None and spec.loader is not None
    measured = module_from_spec(spec)
    spec.loader.exec_module(measured)
    truth = {"mean": measured.MEAN, "Sharpe": measured.MEAN * math.sqrt(statistics.YEAR)}
    found = measured.coverage(measured.LAWS[law], 40, 300, 300, truth)
    for figure in truth:
        assert found[f"{figure}, t"] >= 0.92 - 2.5 * math.sqrt(0.92 * 0.08 / 300), figure
        assert found[f"{figure}, t"] >= found[f"{figure}, %"] + 0.02, figure


@pytest.mark.parametrize(
    "daily",
    [np.full(40, 0.1), np.zeros(40), np.array([7.0]), np.concatenate([[300.0], np.zeros(39)])],
    ids=["constant", "never traded", "one day", "one trade"],
)
def test_where_there_is_no_spread_to_be_known_there_is_no_interval(daily):
    n, block = len(daily), intervals.block_length(len(daily))
    drawn = intervals.stationary_bootstrap(random.key(1), n, n, 200, block)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for interval in (intervals.mean_interval, intervals.sharpe_interval):
            assert all(map(math.isnan, interval(daily, drawn, block)))


def test_infinite_repeats_have_their_place_in_percentiles_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert intervals.percentile(np.array([1.0, 2.0, 3.0, *[math.inf] * 97])) == (3.0, math.inf)
        assert intervals.percentile(np.full(9, math.inf)) == (math.inf, math.inf)
