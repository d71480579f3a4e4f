"""The maze and its navigator in NumPy and in JAX: the same bits, compiled or not, alone or side by side."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from maze_cases import EVERY_TASK, SPEEDS, actions, anywhere

from crossfade.envs.maze import maze_jax, maze_numpy, navigator_jax, navigator_numpy
from crossfade.envs.maze.data import collect, transitions
from crossfade.envs.maze.params import GRAIN, MAPS, MazeParams, State
from crossfade.envs.world import World, make_world
from default_run import few


def same(ours, theirs):
    """Bit for bit, and of one dtype."""
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        assert x.tobytes() == y.tobytes()


step = jax.jit(lambda maze, state, action: maze.step(None, None, state, action), static_argnums=0)
navigate = jax.jit(navigator_jax.navigate, static_argnums=0)


@pytest.mark.parametrize("speed", few(SPEEDS, 0.25, 0.3))
@pytest.mark.parametrize("name", MAPS)
def test_steps_from_anywhere(name, speed):
    params = MazeParams(map=name, task=2, speed=speed, limit=7, tolerance=0.7)
    ours, theirs = maze_numpy.Maze(params), maze_jax.Maze(params)
    near = params.goal + np.float32(1 / 1024) * np.random.default_rng(3).integers(-256, 256, (500, 2), dtype=np.int32)
    position = np.concatenate([anywhere(params, 2000), near.astype(np.float32)])
    state, action = State(position, np.arange(2500, dtype=np.int32) % 9), actions(2500)
    after, outcome = ours.step(None, None, state, action)
    same((after, outcome), step(theirs, jax.tree.map(jnp.asarray, state), jnp.asarray(action)))
    assert 100 < outcome.terminated.sum() < 1500 and 100 < outcome.truncated.sum() < 1500


def test_success_at_the_very_edge():
    """On the circle, a grain within and a grain beyond; and far away."""
    params = MazeParams(tolerance=0.625)
    edge = np.array([[0.375, 0.5], [0.5, -0.375], [0.625, 0], [0, -0.625]], np.float32)
    away = np.concatenate([edge, edge + np.sign(edge) / np.float32(GRAIN), edge - np.sign(edge) / np.float32(GRAIN)])
    away = np.concatenate([away, 10 * edge])
    found = jax.jit(maze_jax.Maze(params).reached)(*map(jnp.asarray, (params.goal + away, params.goal[None])))
    np.testing.assert_array_equal(found, [True] * 4 + [False] * 4 + [True] * 4 + [False] * 4)
    same(maze_numpy.Maze(params).reached(params.goal + away, params.goal[None]), found)


def test_steps_that_are_not_compiled():
    params = MazeParams(speed=0.3)
    state, action = State(anywhere(params, 1000), np.zeros(1000, np.int32)), actions(1000)
    theirs = maze_jax.Maze(params).step(None, None, jax.tree.map(jnp.asarray, state), jnp.asarray(action))
    same(maze_numpy.Maze(params).step(None, None, state, action), theirs)


@pytest.mark.slow
@pytest.mark.parametrize("batch", [(), (3,), (2, 5)])
def test_any_batch(batch):
    params, rng = MazeParams(jitter=0.2), np.random.default_rng(0)
    uniform, action = rng.random((*batch, 2), dtype=np.float32), np.ones((*batch, 2), np.float32)
    ours, theirs = maze_numpy.Maze(params), maze_jax.Maze(params)
    began = ours.begin(None, None, uniform), theirs.begin(None, None, jnp.asarray(uniform))
    same(*began)
    same(ours.observe(None, None, began[0]), theirs.observe(None, None, began[1]))
    same(ours.step(None, None, began[0], action), theirs.step(None, None, began[1], jnp.asarray(action)))


@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.25])
def test_starts(jitter):
    params = MazeParams(jitter=jitter)
    uniform = np.random.default_rng(0).random((5000, 2), dtype=np.float32)
    theirs = jax.jit(lambda u: maze_jax.Maze(params).begin(None, None, u))(jnp.asarray(uniform))
    same(maze_numpy.Maze(params).begin(None, None, uniform), theirs)


@pytest.mark.parametrize("name", MAPS)
def test_two_hundred_episodes_of_random_actions(name):
    """One program for all steps, in which XLA may fuse what it likes."""
    params, rng = MazeParams(map=name, speed=0.3, limit=150), np.random.default_rng(0)
    uniform = rng.random((200, 2), dtype=np.float32)
    action = np.repeat(rng.uniform(-1, 1, (20, 200, 2)), 10, 0).astype(np.float32)
    ours, theirs = maze_numpy.Maze(params), maze_jax.Maze(params)
    state, seen = ours.begin(None, None, uniform), []
    for now in action:
        state, outcome = ours.step(None, None, state, now)
        seen.append((state, outcome))

    def one(state, now):
        state, outcome = theirs.step(None, None, state, now)
        return state, (state, outcome)

    play = jax.jit(lambda u, a: jax.lax.scan(one, theirs.begin(None, None, u), a)[1])
    same(jax.tree.map(lambda *x: np.stack(x), *seen), play(jnp.asarray(uniform), jnp.asarray(action)))
    assert len(np.unique(np.floor(np.stack([s.position for s, _ in seen])).reshape(-1, 2), axis=0)) > 5


@pytest.mark.parametrize("speed", few(SPEEDS, 0.25, 0.3))
@pytest.mark.parametrize("name", MAPS)
def test_navigators(name, speed):
    params, rng = MazeParams(map=name, speed=speed), np.random.default_rng(0)
    position, goal = anywhere(params, 3000), rng.choice(params.free, 3000)
    noise = (0.5 * rng.standard_normal((3000, 2))).astype(np.float32)
    position[:1] = params.centre(goal[:1])
    found = navigator_numpy.navigate(params, position, goal, noise)
    same(found, navigate(params, *map(jnp.asarray, (position, goal, noise))))
    np.testing.assert_array_equal(found[0], noise[0].clip(-1, 1))
    assert np.abs(found).max() == 1


def test_navigated_episodes_in_one_program():
    params, rng = replace(EVERY_TASK[5], speed=0.3), np.random.default_rng(0)
    position, goal = anywhere(params, 300), rng.choice(params.free, 300)
    noise = (0.5 * rng.standard_normal((100, 300, 2))).astype(np.float32)
    ours, theirs, seen, start = maze_numpy.Maze(params), maze_jax.Maze(params), [], position
    for now in noise:
        action = navigator_numpy.navigate(params, position, goal, now)
        position = ours.move(position, action)
        seen.append((position, action))

    def one(position, now):
        action = navigator_jax.navigate(params, position, jnp.asarray(goal), now)
        position = theirs.move(position, action)
        return position, (position, action)

    play = jax.jit(lambda p, n: jax.lax.scan(one, p, n)[1])
    same(jax.tree.map(lambda *x: np.stack(x), *seen), play(jnp.asarray(start), jnp.asarray(noise)))


def test_data_that_numpy_collected_are_steps_of_jax():
    params = MazeParams()
    found = transitions(collect(params, episodes=100))
    moved = jax.jit(maze_jax.Maze(params).move)(jnp.asarray(found.observations), jnp.asarray(found.actions))
    same(found.next_observations, moved)


def test_with_float64_the_maze_stays_what_it_is(x64):
    params = MazeParams(speed=0.3)
    state, action = State(anywhere(params, 1000), np.zeros(1000, np.int32)), actions(1000).astype(np.float64)
    theirs = step(maze_jax.Maze(params), jax.tree.map(jnp.asarray, state), jnp.asarray(action))
    same(maze_numpy.Maze(params).step(None, None, state, action), theirs)


def test_both_are_worlds():
    world = make_world(MazeParams(), "jax")
    assert isinstance(world, World) and hash(world) == hash(maze_jax.Maze(MazeParams()))
