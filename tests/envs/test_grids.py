"""Grid and hypergrid: orders of actions, rewards cell by cell, pictures."""

from fractions import Fraction
from math import prod

import numpy as np
import pytest

from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.grid.grid_numpy import Grid
from crossfade.envs.dag.grid.params import GridParams
from crossfade.envs.dag.grid.view import ascii_picture, pairs, plane, sampled_plane
from crossfade.envs.dag.hypergrid.hypergrid_numpy import Hypergrid
from crossfade.envs.dag.hypergrid.params import HypergridParams


def test_grid_actions_are_in_upstream_order():
    assert GridParams().increments.tolist() == [[0, 1], [1, 0]]
    wide = GridParams(max_increment=2, max_dim_per_action=2)
    assert wide.increments.tolist() == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]
    assert GridParams(n_dim=3, length=4, max_increment=2).n_actions == 7


def test_grid_reward_is_a_gaussian_in_each_corner():
    params = GridParams(n_dim=2, length=5)
    x = np.array([[0, 3]])  # at -1 and 1/2 on the scale from -1 to 1
    square = (1 - 0.75) ** 2 + (0.5 - 0.75) ** 2
    assert Grid(params).log_r(x)[0] == pytest.approx(-square / 2 / 0.05 - np.log(2 * np.pi * 0.05), abs=1e-14)


def exact_reward(params, x):
    """The definition in rational arithmetic."""
    a = [abs(Fraction(int(s), params.length - 1) - Fraction(1, 2)) for s in x]
    r0, r1, r2 = params.constants
    band = all(Fraction(3, 10) < v < Fraction(4, 10) for v in a)
    if params.reward == "corners":
        return r0 + r1 * all(v > Fraction(1, 4) for v in a) + r2 * band
    if params.reward == "deceptive":
        return r0 + r1 - r1 * all(v > Fraction(1, 10) for v in a) + r2 * band
    if params.reward == "cosine":
        phi = [np.exp(-((5 * float(v)) ** 2) / 2) / np.sqrt(2 * np.pi) for v in a]
        return r0 + r1 * prod((np.cos(50 * float(v)) + 1) * p for v, p in zip(a, phi, strict=True))
    high = params.length - 2
    return r0 + r1 * (all(s in (1, high) for s in x) and high in x)


@pytest.mark.parametrize("reward", ["corners", "cosine", "deceptive", "sparse"])
@pytest.mark.parametrize("length", [2, 3, 8, 11, 13, 16, 21, 25])
def test_hypergrid_rewards_follow_exact_arithmetic(reward, length):
    params = HypergridParams(n_dim=2, length=length, reward=reward)
    env = Hypergrid(params)
    states = env.state(np.arange(env.n_states))
    expected = np.log([exact_reward(params, x) for x in states.x])
    np.testing.assert_allclose(env.log_reward(states), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("length, band", [(8, {1, 6}), (11, set()), (16, {2, 13}), (20, {2, 3, 16, 17}), (21, {3, 17})])
def test_ties_fall_on_neither_side(length, band):
    assert set(np.flatnonzero(HypergridParams(length=length).region == 2)) == band


def test_pictures_show_the_marginal_of_two_dimensions():
    params = HypergridParams(n_dim=3, length=4)
    p = np.arange(64.0) / np.arange(64).sum()
    assert plane(p, params).shape == (4, 4)
    assert plane(p, params).sum() == pytest.approx(1)
    assert plane(p[:4], HypergridParams(n_dim=1, length=4)).shape == (1, 4)
    assert pairs(params) == [(0, 1), (2, 0)]
    x = np.stack(np.unravel_index(np.arange(64), (4, 4, 4)), axis=-1)
    for pair in [(0, 1), (2, 0)]:
        weighted = np.repeat(x, np.arange(64), axis=0)
        np.testing.assert_allclose(sampled_plane(weighted, params, pair), plane(p, params, pair), atol=1e-12)
    point = np.zeros(16)
    point[6] = 1
    assert ascii_picture(point, GridParams(length=4)) == "    \n  @ \n    \n    "


def test_ways_to_a_cell_are_counted_by_a_formula():
    params = HypergridParams(n_dim=3, length=4)
    graph = enumerate_states(Hypergrid(params))
    x = Hypergrid(params).state(np.arange(params.length**params.n_dim)).x
    np.testing.assert_allclose(params.log_paths(x, np), exact_numpy.log_path_counts(graph), atol=1e-12)
