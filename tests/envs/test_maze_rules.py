"""The rules of the maze: by hand, against balls that are pushed grain by grain, and broken one by one."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from maze_cases import EVERY_TASK, SPEEDS, actions, anywhere, overlaps, pushed

from crossfade.envs.maze import maze_numpy
from crossfade.envs.maze.maze_numpy import Maze
from crossfade.envs.maze.navigator_numpy import navigate
from crossfade.envs.maze.params import GRAIN, MAPS, MazeParams, State
from crossfade.envs.maze.paths import shortest_paths
from crossfade.envs.world import World, make_world
from crossfade.errors import UsageError

UMAZE = MazeParams(map="umaze")
xy = lambda *numbers: np.array(numbers, np.float32)


# By hand: row 1 of the umaze is free from x = 1 to 6, with walls above and below; column 5 leads down to row 3


@pytest.mark.parametrize(
    ("position", "action", "expected"),
    [
        ((2.5, 1.5), (1, 0), (2.75, 1.5)),
        ((2.5, 1.5), (-0.5, 0), (2.375, 1.5)),
        ((2.5, 1.5), (7, 0), (2.75, 1.5)),  # clipped
        ((2.5, 1.5), (0, 1), (2.5, 1.75)),  # touches the wall
        ((2.5, 1.75), (1, 1), (2.75, 1.75)),  # slides along it
        ((2.5, 1.25), (0, -1), (2.5, 1.25)),
        ((5.625, 1.5), (1, 0), (5.75, 1.5)),  # the wall at x = 6, less the radius
        ((1.375, 1.5), (-1, 0), (1.25, 1.5)),
        ((5.5, 1.75), (0, 1), (5.5, 2.0)),  # down through the gap
        ((5.125, 1.625), (0, 1), (5.125, 1.75)),  # the square still overlaps column 4
        ((5.125, 1.75), (1, 1), (5.375, 2.0)),  # x moves first, and clears the corner
        ((5.25, 1.75), (-1, 1), (5.0, 1.75)),  # x moves first, and is in the way
        ((5.5, 2.0), (-1, 0), (5.25, 2.0)),
        ((2.5, 1.5), (0.0009, 0), (2.5, 1.5)),  # 0.46 grains
        ((2.5, 1.5), (0.0011, 0), (2.5 + 1 / GRAIN, 1.5)),  # 0.56 grains
    ],
)
def test_moves(position, action, expected):
    np.testing.assert_array_equal(Maze(UMAZE).move(xy(*position), xy(*action)), xy(*expected))


def test_an_episode_begins_around_the_centre_of_its_cell():
    maze = Maze(replace(UMAZE, jitter=0.125))
    state = maze.begin(None, None, np.array([[0, 0], [0.5, 0.75], [1 - 2**-24, 0.25]], np.float32))
    np.testing.assert_array_equal(state.position, [[1.375, 1.375], [1.5, 1.5625], [1.625, 1.4375]])
    np.testing.assert_array_equal(state.t, [0, 0, 0])
    assert state.position.dtype == np.float32 and state.t.dtype == np.int32


def test_arriving_ends_an_episode_and_costs_nothing():
    maze = Maze(replace(UMAZE, limit=10))  # the goal is (1.5, 3.5)
    state = State(
        np.array([[2.25, 3.5], [2.5, 3.5], [2.25, 3.5], [3.5, 3.5]], np.float32), np.array([0, 0, 9, 9], "i4")
    )
    after, outcome = maze.step(None, None, state, np.array([[-1, 0]] * 4, np.float32))
    np.testing.assert_array_equal(after.position[:, 0], [2.0, 2.25, 2.0, 3.25])
    np.testing.assert_array_equal(after.t, [1, 1, 10, 10])
    np.testing.assert_array_equal(outcome.reward, [0, -1, 0, -1])
    np.testing.assert_array_equal(outcome.terminated, [True, False, True, False])
    np.testing.assert_array_equal(outcome.truncated, [False, False, False, True])
    assert outcome.reward.dtype == np.float32


def test_success_is_within_a_circle():
    maze = Maze(replace(UMAZE, tolerance=0.625))
    away = np.array([[0.375, 0.5], [-0.375, 0.5 + 1 / GRAIN], [0.625, 0], [0, -0.625 - 1 / GRAIN], [4, 0]], np.float32)
    np.testing.assert_array_equal(maze.reached(UMAZE.goal + away, UMAZE.goal), [True, False, True, False, False])


# Maps and tasks


@pytest.mark.parametrize("name", MAPS)
def test_a_map_is_walled_and_of_one_piece(name):
    params = MazeParams(map=name)
    walls, distance = params.walls, shortest_paths(params.layout).distance
    assert walls[[0, -1]].all() and walls[:, [0, -1]].all() and len({len(row) for row in params.layout}) == 1
    assert (distance[np.ix_(params.free, params.free)] >= 0).all()
    assert len({(p.start_cell, p.goal_cell) for p in EVERY_TASK if p.map == name}) == 5


@pytest.mark.parametrize("params", EVERY_TASK, ids=str)
def test_a_task_is_far_from_done(params):
    assert {params.start_cell, params.goal_cell} <= set(params.free.tolist())
    assert shortest_paths(params.layout).distance[params.goal_cell, params.start_cell] >= 9


@pytest.mark.parametrize("name", MAPS)
def test_ways_are_shortest(name):
    """Against powers of the matrix of neighbours; and each next cell is a neighbour that is nearer."""
    params = MazeParams(map=name)
    (rows, columns), paths = params.walls.shape, shortest_paths(params.layout)
    row, column = np.divmod(np.arange(rows * columns), columns)
    beside = abs(row[:, None] - row) + abs(column[:, None] - column) == 1
    free = ~params.walls.reshape(-1)
    beside &= free & free[:, None]
    known, expected = np.diag(free), np.where(np.diag(free), 0, -1)
    for length in range(1, rows * columns):
        now = known | ((known.astype(int) @ beside) > 0)
        expected[now & ~known] = length
        known = now
    np.testing.assert_array_equal(paths.distance, expected)
    goal, cell = np.nonzero(expected > 0)
    assert beside[cell, paths.following[goal, cell]].all()
    assert (expected[goal, paths.following[goal, cell]] == expected[goal, cell] - 1).all()
    goal, cell = np.nonzero(expected <= 0)
    np.testing.assert_array_equal(paths.following[goal, cell], cell)


# Scripted policies


def succeeded(params: MazeParams, n: int, scripted: bool, noise: float = 0.0) -> Any:
    """Whether balls reach the goal within the limit: (n,) bool."""
    maze, rng = Maze(params), np.random.default_rng(0)
    state, done = maze.begin(None, None, rng.random((n, 2), dtype=np.float32)), np.zeros(n, bool)
    for _ in range(params.limit):
        added = np.float32(noise) * rng.standard_normal((n, 2), dtype=np.float32)
        goal = np.full(n, params.goal_cell, np.int32)
        action = navigate(params, state.position, goal, added) if scripted else rng.uniform(-1, 1, (n, 2))
        state, outcome = maze.step(None, None, state, action)
        done |= outcome.terminated
    return done


@pytest.mark.parametrize("params", EVERY_TASK, ids=str)
def test_the_navigator_always_arrives_and_chance_hardly_ever(params):
    assert succeeded(params, 200, scripted=True).all()
    assert succeeded(params, 200, scripted=True, noise=0.5).all()
    assert succeeded(params, 200, scripted=False).mean() < 0.02


@pytest.mark.parametrize("speed", SPEEDS[1:])
@pytest.mark.parametrize("name", MAPS)
def test_the_navigator_arrives_from_anywhere_at_any_speed(name, speed):
    params = MazeParams(map=name, speed=speed)
    maze, position = Maze(params), anywhere(params, 1000)
    goal = np.random.default_rng(2).choice(params.free, 1000)
    for _ in range(200):
        position = maze.move(position, navigate(params, position, goal, np.zeros_like(position)))
    assert np.abs(position - params.centre(goal)).max() <= 1 / GRAIN


# Against balls pushed grain by grain, and with one rule broken at a time


@cache
def pushes(params: MazeParams) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    position, action = anywhere(params, 1000), actions(1000)
    return position, action, pushed(params, position, action)


def broken(module: Any) -> Iterator[str]:
    """Which rules the maze of a module breaks."""
    for name in MAPS:
        for speed in SPEEDS:
            params = MazeParams(map=name, speed=speed)
            position, action, expected = pushes(params)
            if not np.array_equal(module.Maze(params).move(position, action), expected):
                yield f"moves on {name} at speed {speed}"
    task = MazeParams(map="umaze", limit=100)
    maze, rng = module.Maze(task), np.random.default_rng(0)
    uniform = rng.random((100, 2), dtype=np.float32)
    state = maze.begin(None, None, uniform)
    if np.abs(state.position - (task.start + (2 * uniform.astype(float) - 1) * task.jitter)).max() > 0.5 / GRAIN:
        yield "starts"
    around, radius = rng.uniform(-0.6, 0.6, (1000, 2)).astype(np.float32), task.tolerance
    if not np.array_equal(maze.reached(task.goal + around, task.goal), np.hypot(*around.T.astype(float)) <= radius):
        yield "success"
    at_goal = np.zeros(100, bool)
    for t in range(1, 101):
        goal = np.full(100, task.goal_cell, np.int32)
        action = navigate(task, state.position, goal, np.zeros_like(uniform)) * np.float32(1 - at_goal)[:, None]
        action[50:] = 0
        state, outcome = maze.step(None, None, state, action)
        at_goal = np.sqrt(((state.position.astype(float) - task.goal) ** 2).sum(-1)) <= task.tolerance
        if not np.array_equal(outcome.reward, np.where(at_goal, 0, -1)):
            yield f"reward at {t}"
        if not np.array_equal(outcome.terminated, at_goal):
            yield f"terminated at {t}"
        if not np.array_equal(outcome.truncated, ~at_goal & (t >= 100)):
            yield f"truncated at {t}"
    if not (at_goal[:50].all() and not at_goal[50:].any()):
        yield "arrivals"


MUTANTS = {
    "tunnels to the right": ("here + (1 - radius), np.float32(np.inf)", "np.float32(np.inf), np.float32(np.inf)"),
    "tunnels to the left": ("here + radius, np.float32(-np.inf)", "np.float32(-np.inf), np.float32(-np.inf)"),
    "no radius": ("np.float32(RADIUS)", "np.float32(0)"),
    "stops a cell early": ("here + (1 - radius)", "here - radius"),
    "stops at the centre": ("here + (1 - radius)", "here + 2 * radius"),
    "off by one to the right": ("walls[cell + 1, first] | walls[cell + 1", "walls[cell, first] | walls[cell"),
    "off by one to the left": ("walls[cell - 1, first] | walls[cell - 1", "walls[cell - 2, first] | walls[cell - 2"),
    "corner cut at first": ("walls[cell + 1, first] | walls[cell + 1, last]", "walls[cell + 1, last]"),
    "corner cut at last": ("walls[cell - 1, first] | walls[cell - 1, last]", "walls[cell - 1, first]"),
    "touching is overlapping": (
        "np.ceil(across + radius).astype(np.int32) - 1",
        "np.floor(across + radius).astype(int)",
    ),
    "walls transposed": ("y, self.params.walls.T)", "y, self.params.walls[: , : self.params.walls.shape[0]])"),
    "axes swapped": ("x, y = position[..., 0], position[..., 1]", "y, x = position[..., 0], position[..., 1]"),
    "action's axes swapped": ("np.clip(action.astype(", "np.clip(action[..., ::-1].astype("),
    "y before x": ("x, self.params.walls)", "position[..., 0], self.params.walls)"),
    "y ignored": ("return np.stack([x, y], -1)", "return np.stack([x, position[..., 1]], -1)"),
    "no clipping": ("np.clip(action.astype(np.float32), -1, 1)", "action.astype(np.float32)"),
    "grain rounded down": ("np.rint(", "np.floor("),
    "coarser grain": ("np.rint(distance * np.float32(GRAIN)) / np.float32(GRAIN)", "np.rint(distance * 64) / 64"),
    "reward's sign": ("arrived.astype(np.float32) - np.float32(1)", "np.float32(1) - arrived.astype(np.float32)"),
    "reward of arriving": ("arrived.astype(np.float32) - np.float32(1)", "arrived.astype(np.float32)"),
    "judged before the move": ("self.reached(after.position,", "self.reached(state.position,"),
    "judged at the start": ("after.position, self.params.goal)", "after.position, self.params.start)"),
    "square of success": ("(away * away).sum(-1)", "(away * away).max(-1)"),
    "tolerance not squared": ("self.params.tolerance**2", "self.params.tolerance"),
    "one step too long": ("after.t >= self.params.limit", "after.t > self.params.limit"),
    "truncated where terminated": (" & ~arrived", ""),
    "clock stands": ("state.t + np.int32(1)", "state.t"),
    "jitter on one side": ("uniform - np.float32(0.5)", "uniform"),
    "half the jitter": ("2 * self.params.jitter", "self.params.jitter"),
}


def mutant(old: str, new: str) -> ModuleType:
    source = inspect.getsource(maze_numpy)
    assert source.count(old) == 1, f"expected once in maze_numpy.py: {old}"
    module = ModuleType("crossfade.envs.maze.mutant")
    module.__package__ = "crossfade.envs.maze"
    exec(source.replace(old, new), module.__dict__)
    return module


def test_no_rule_is_broken():
    assert list(broken(maze_numpy)) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_rule_is_noticed(name):
    try:
        assert next(broken(mutant(*MUTANTS[name])), None) is not None
    except IndexError:  # a ball beyond the map
        pass


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("name", MAPS)
def test_no_ball_is_ever_in_a_wall(name, speed):
    params = MazeParams(map=name, speed=speed)
    maze, position = Maze(params), anywhere(params, 500)
    for step in range(300):
        position = maze.move(position, np.sign(actions(500, step // 5)))
        grains = (position.astype(np.float64) * GRAIN).astype(np.int64)
        np.testing.assert_array_equal(grains / GRAIN, position)
        assert not overlaps(params, grains).any()


# The face of a world


def test_it_is_a_world():
    world = make_world(MazeParams(), "numpy")
    assert isinstance(world, World) and hash(world) == hash(Maze(MazeParams()))
    state = world.begin(None, None, np.zeros((3, 4, 2), np.float32))
    assert world.mask(None, None, state) is None and world.observe(None, None, state).shape == (3, 4, 2)
    single = world.begin(None, None, np.zeros(2, np.float32))
    after, outcome = world.step(None, None, single, np.ones(2, np.float32))
    assert after.position.shape == (2,) and after.position.dtype == np.float32 and np.shape(outcome.reward) == ()


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"speed": 0.8}, "speed: expected a finite number from 0.015625 to 0.75, got 0.8."),
        ({"tolerance": 1.0}, "tolerance: expected a finite number above 0 and below 1, got 1.0."),
        ({"jitter": 0.3}, "jitter: expected a finite number from 0 to 0.25, got 0.3."),
        ({"limit": 0}, "limit: expected an integer from 1 to 2^31 - 1, got 0."),
        ({"noise": -1.0}, "noise: expected a finite number of at least 0, got -1.0."),
    ],
)
def test_what_a_maze_cannot_be_is_refused(given, hint):
    with pytest.raises(UsageError, match=re.escape(hint)):
        MazeParams(**given)
