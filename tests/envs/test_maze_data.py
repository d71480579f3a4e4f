"""Data collected in mazes: which they are, what they hold, and their rewards."""

import hashlib
import re
from dataclasses import replace

import numpy as np
import pytest

from crossfade.envs.maze import MazeParams, Rows, collect, relabel, transitions
from crossfade.envs.maze.data import HOLD
from crossfade.envs.maze.maze_numpy import Maze
from crossfade.envs.maze.params import MAPS
from crossfade.errors import UsageError

PARAMS = MazeParams()


def digest(rows: Rows) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in rows)).hexdigest()


def cells(params: MazeParams, positions: np.ndarray) -> np.ndarray:
    column, row = np.floor(positions).astype(int).T
    return row * params.walls.shape[1] + column


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        ("navigate", "379603e8eba5a7f1f210cb53219c46c4042ed0154befd4afeb6cc6df7f3f762d"),
        ("explore", "9e4a46af51e7cfbad62e9ae64da72622c6521c3bfdc6935c43b6597baa0a58bd"),
    ],
)
def test_the_default_data_are_always_the_same(style, expected):
    assert digest(collect(PARAMS, style=style)) == expected


def test_every_setting_makes_other_data():
    small = {"episodes": 5, "length": 30}
    found = [
        collect(PARAMS, **small),
        collect(PARAMS, **small, seed=1),
        collect(PARAMS, **small, noise=0.25),
        collect(PARAMS, **small, style="explore"),
        collect(replace(PARAMS, speed=0.3), **small),
        collect(replace(PARAMS, map="large"), **small),
    ]
    assert len(set(map(digest, found))) == len(found)
    assert digest(collect(replace(PARAMS, noise=0.25), **small)) == digest(found[2])
    assert digest(collect(replace(PARAMS, task=3), **small)) == digest(found[0])  # the task plays no part


@pytest.mark.parametrize("style", ["navigate", "explore"])
@pytest.mark.parametrize("name", MAPS)
def test_rows_are_trajectories_of_the_maze(name, style):
    params = MazeParams(map=name)
    rows = collect(params, episodes=50, length=120, style=style)
    assert [array.shape for array in rows] == [(6050, 2), (6050, 2), (6050,)]
    assert all(array.dtype == np.float32 for array in rows)
    np.testing.assert_array_equal(np.flatnonzero(rows.terminals), np.arange(120, 6050, 121))
    assert np.abs(rows.actions).max() == 1
    found = transitions(rows)
    assert [len(array) for array in found] == [6000] * 4
    np.testing.assert_array_equal(Maze(params).move(found.observations, found.actions), found.next_observations)
    np.testing.assert_array_equal(np.flatnonzero(found.terminals), np.arange(119, 6000, 120))
    np.testing.assert_array_equal(found.observations.reshape(50, 120, 2), rows.observations.reshape(50, 121, 2)[:, :-1])
    np.testing.assert_array_equal(found.actions.reshape(50, 120, 2), rows.actions.reshape(50, 121, 2)[:, :-1])


@pytest.mark.parametrize("style", ["navigate", "explore"])
def test_the_data_cover_the_maze(style):
    for name in MAPS:
        params = MazeParams(map=name)
        assert set(cells(params, collect(params, style=style).observations)) == set(params.free)


def test_navigators_go_from_goal_to_goal():
    """Without noise each step leads on along a shortest way, so that in 200 steps a ball sees much of the maze."""
    kinds = {}
    for style in ("navigate", "explore"):
        seen = cells(PARAMS, collect(PARAMS, episodes=100, noise=0.0, style=style).observations).reshape(100, 201)
        kinds[style] = np.mean([len(set(one)) for one in seen])
    assert kinds["navigate"] > 15 > kinds["explore"]
    place = collect(PARAMS, episodes=100, noise=0.0).observations.reshape(100, 201, 2)
    assert (np.diff(place, axis=1) == 0).all(-1).mean() < 0.02


def test_explorers_keep_their_direction():
    action = collect(PARAMS, episodes=20, length=99, noise=0.0, style="explore").actions.reshape(20, 10, HOLD, 2)
    assert (action == action[:, :, :1]).all()
    assert len(np.unique(action.reshape(-1, 2), axis=0)) == 200
    np.testing.assert_allclose(np.hypot(action[..., 0], action[..., 1]), 1, rtol=1e-6)


@pytest.mark.parametrize("task", [1, 2, 3, 4, 5])
def test_rewards_of_next_observations_are_those_of_the_world(task):
    params = replace(PARAMS, task=task)
    found = transitions(collect(params, style="explore"))
    reward, mask = relabel(params, found.next_observations)
    maze = Maze(params)
    state = maze.begin(None, None, np.zeros((len(mask), 2), np.float32))._replace(position=found.observations)
    _, outcome = maze.step(None, None, state, found.actions)
    np.testing.assert_array_equal(reward, outcome.reward)
    np.testing.assert_array_equal(mask, ~outcome.terminated)
    assert reward.dtype == mask.dtype == np.float32 and set(reward) == {0, -1}


def test_success_by_hand():
    away = np.array([[0, 0], [0.5, 0], [0.25, -0.375], [0.5, 0.125], [-0.375, 0.375], [3, 0]], np.float32)
    reward, mask = relabel(PARAMS, PARAMS.goal + away)
    np.testing.assert_array_equal(reward, [0, 0, 0, -1, -1, -1])
    np.testing.assert_array_equal(mask, [0, 0, 0, 1, 1, 1])


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"episodes": 0}, "episodes: expected an integer from 1 to 2^31 - 1, got 0."),
        ({"length": 0}, "length: expected an integer from 1 to 2^31 - 1, got 0."),
        ({"seed": -1}, "seed: expected an integer from 0 to 2^32 - 1, got -1."),
        ({"noise": float("nan")}, "noise: expected a finite number of at least 0, got nan."),
    ],
)
def test_what_cannot_be_collected_is_refused(given, hint):
    with pytest.raises(UsageError, match=re.escape(hint)):
        collect(PARAMS, **given)


def test_rows_that_do_not_end_are_refused():
    rows = collect(PARAMS, episodes=2, length=3)
    with pytest.raises(UsageError, match="the last row of each terminal"):
        transitions(Rows(*(array[:-1] for array in rows)))
