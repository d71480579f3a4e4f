"""Goals of offline learning follow their laws: counts of many draws against exact probabilities, by chi-square."""

from dataclasses import replace

import numpy as np
import pytest
from offline_data_cases import data, source
from scipy.stats import chi2

from crossfade.algos.offline.agent import Goals
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.data import draws_numpy, sampling_numpy
from crossfade.algos.offline.data.choice import GoalNumbers
from crossfade.random import random_numpy as random

N = 200_000
LENGTHS = 9, 5, 3
"""Rows of trajectories: 8, 4 and 2 steps. Row 2 has 5 steps after it."""
STEPS, ROW, LAST = 14, 2, 7
CONFIG = OfflineConfig(gamma=0.7, normalize="none")


def drawn(law, config=CONFIG, compact=False, row=ROW):
    """How often each step is the goal of a row."""
    found = source(config, data(lengths=LENGTHS, compact=compact))
    keys = [random.fold_in(random.key(11), i) for i in range(4)]
    uniform = (random.uniform(key, (N,)) for key in keys[1:])
    numbers = GoalNumbers(draws_numpy.draw_rows(keys[0], STEPS, (N,)), *uniform)
    row = sampling_numpy.chosen(found, np.full(N, row, np.int32))
    goals = sampling_numpy.goal_rows(found, row, numbers, law, config)
    rows = np.arange(STEPS) if found.data.drawable is None else found.data.drawable
    assert np.isin(goals, rows).all()
    return np.bincount(np.searchsorted(rows, goals), minlength=STEPS)


def geometric(gamma=0.7, least=1):
    """P(goal) of row 2 under offsets least - 1 + Geometric(1 - gamma), cut at the end."""
    p = np.zeros(STEPS)
    for k in range(1, 200):
        p[min(ROW + k - 1 + least, LAST)] += (1 - gamma) * gamma ** (k - 1)
    return p


def uniform():
    """P(goal) of row 2: round(7 - 4 u) has half a share at both ends."""
    p = np.zeros(STEPS)
    p[ROW + 1 : LAST + 1] = [1 / 8, 1 / 4, 1 / 4, 1 / 4, 1 / 8]
    return p


def mixed(law, ahead):
    own = law.trajectory / (1 - law.current + 1e-6)
    p = (1 - law.current) * (own * ahead + (1 - own) * np.ones(STEPS) / STEPS)
    p[ROW] += law.current
    return p


def agrees(counts, probabilities):
    """Pearson's test at 0.1 %; what cannot happen has not, but for the one in a million of `1e-6`."""
    assert probabilities.sum() == pytest.approx(1)
    common = probabilities * N > 5
    assert counts[~common].sum() < 20
    expected = probabilities[common] * N
    statistic = np.square(counts[common] - expected) / expected
    return statistic.sum() < chi2.ppf(0.999, common.sum() - 1)


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("law", [Goals(), Goals(trajectory=0.625), Goals(trajectory=0.5, current=0.2), Goals(0, 0)])
def test_geometric_goals(law, compact):
    counts = drawn(law, compact=compact)
    assert agrees(counts, mixed(law, geometric()))
    assert law.trajectory == 0 or not agrees(counts, mixed(law, geometric(gamma=0.71)))
    assert law.trajectory == 0 or not agrees(counts, mixed(law, uniform()))


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("law", [Goals(geometric=False), Goals(0.5, 0.25, geometric=False)])
def test_uniform_goals(law, compact):
    counts = drawn(law, compact=compact)
    assert agrees(counts, mixed(law, uniform()))
    even = np.zeros(STEPS)
    even[ROW + 1 : LAST + 1] = 1 / 5
    assert not agrees(counts, mixed(law, even))


def test_corrected_geometric_goals_may_be_the_row_itself():
    config = replace(CONFIG, corrected=("geometric_offset",), geometric_start=0)
    counts = drawn(Goals(), config)
    assert agrees(counts, mixed(Goals(), geometric(least=0)))
    assert agrees(drawn(Goals(), replace(CONFIG, geometric_start=0)), mixed(Goals(), geometric(least=1)))


def test_a_discount_of_1_goes_to_the_end_and_of_0_one_step():
    assert drawn(Goals(), replace(CONFIG, gamma=1.0))[LAST] > N - 20
    assert drawn(Goals(), replace(CONFIG, gamma=0.0))[ROW + 1] > N - 20


def test_the_last_step_is_its_own_goal():
    for law in (Goals(), Goals(geometric=False)):
        assert drawn(law, row=LAST)[LAST] > N - 20


def test_rows_are_drawn_alike():
    counts = np.bincount(draws_numpy.draw_rows(random.key(3), STEPS, (N,)), minlength=STEPS)
    assert agrees(counts, np.ones(STEPS) / STEPS)
    assert not agrees(counts + np.eye(STEPS, dtype=int)[0] * 2000, np.ones(STEPS) / STEPS)
