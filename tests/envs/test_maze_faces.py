"""The maze for people and for Gymnasium."""

import re
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium
from stable_baselines3.common.env_checker import check_env as check_stable_baselines

from crossfade.envs.maze import MazeEnv, MazeParams, collect
from crossfade.envs.maze.gymnasium_env import ID
from crossfade.envs.maze.maze_numpy import Maze
from crossfade.envs.maze.params import MAPS
from crossfade.envs.maze.view import ansi, picture
from crossfade.errors import UsageError
from crossfade.run.plots import to_svg

UMAZE = MazeParams(map="umaze")


def test_a_maze_in_characters():
    expected = """
# # # # # # #
# S . . o . #
# # # # # . #
# G . . . . #
# # # # # # #"""
    position = np.array([4.9, 1.2], np.float32)
    assert ansi(UMAZE, position, colour=False) == expected.strip()
    assert "o" not in ansi(UMAZE, colour=False)
    coloured = ansi(UMAZE, position)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured).replace(" \n", "\n").rstrip() == expected.strip()


def test_a_picture_shows_walls_goal_and_trajectories():
    rows = collect(UMAZE, episodes=3, length=50)
    lines = rows.observations.reshape(3, 51, 2)
    (axes,) = picture(UMAZE, list(lines)).axes
    walls = [patch.get_xy() for patch in axes.patches[:-1]]
    np.testing.assert_array_equal(walls, np.argwhere(UMAZE.walls)[:, ::-1])
    drawn = [line.get_xydata() for line in axes.lines if len(line.get_xdata()) > 1]
    np.testing.assert_allclose(drawn, lines)
    circle = axes.patches[-1]
    assert (circle.center, circle.radius) == ((1.5, 3.5), 0.5)
    assert axes.yaxis_inverted()
    assert to_svg(picture(UMAZE, list(lines))) == to_svg(picture(UMAZE, list(lines)))


def test_text_needs_no_matplotlib_and_the_package_no_framework():
    code = (
        "import sys, crossfade.envs.maze as m; m.collect(m.MazeParams(), 2, 2)\n"
        "from crossfade.envs.maze.view import ansi; ansi(m.MazeParams())\n"
        "assert not {'torch', 'jax', 'gymnasium', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", MAPS)
def test_both_checkers_have_nothing_to_say(name):
    """Neither an error nor, warnings being errors, a warning."""
    env = gymnasium.make(ID, map=name, task=3)
    check_gymnasium(env.unwrapped)
    check_stable_baselines(env.unwrapped)


def test_gymnasium_steps_are_those_of_the_maze():
    env, maze = MazeEnv(UMAZE), Maze(UMAZE)
    seen, info = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(seen, again)
    assert info == {"success": False}
    state = maze.begin(None, None, np.zeros(2, np.float32))._replace(position=seen.copy())
    rng, ended = np.random.default_rng(0), False
    while not ended:
        action = rng.uniform(-1, 1, 2).astype(np.float32)
        seen, reward, terminated, truncated, info = env.step(action)
        state, outcome = maze.step(None, None, state, action)
        np.testing.assert_array_equal(seen, state.position)
        assert (reward, terminated, truncated) == (outcome.reward, outcome.terminated, outcome.truncated)
        assert info == {"success": terminated} and env.observation_space.contains(seen)
        ended = terminated or truncated
    assert state.t == 200 and isinstance(truncated, bool)


def test_gymnasium_episodes_succeed():
    env = MazeEnv(UMAZE)
    seen, _ = env.reset(seed=0)
    for way in [(1, 0)] * 20 + [(0, 1)] * 10 + [(-1, 0)] * 20:
        seen, reward, terminated, truncated, info = env.step(np.array(way, np.float32))
        if terminated:
            break
    assert (reward, terminated, truncated, info) == (0.0, True, False, {"success": True})


def test_gymnasium_shows_the_ball():
    env = gymnasium.make(ID, map="umaze", render_mode="ansi")
    env.reset(seed=0)
    assert env.render().splitlines()[1] == "# o . . . . #"
    assert MazeEnv(UMAZE).render() is None


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda: gymnasium.make(ID, map="hugemaze"), "map: expected one of umaze | medium | large, got 'hugemaze'."),
        (lambda: gymnasium.make(ID, task=6), "task: expected one of 1 | 2 | 3 | 4 | 5, got 6."),
        (lambda: gymnasium.make(ID, sped=0.5), "unknown setting 'sped'. Did you mean 'speed'?"),
        (lambda: MazeEnv(render_mode="human"), "render_mode: expected 'ansi' or None, got 'human'."),
        (lambda: MazeEnv().reset(options={"t": 3}), "options: expected none, got ['t']."),
        (lambda: MazeEnv().step(np.zeros(2, np.float32)), "Call reset() first."),
    ],
)
def test_what_gymnasium_cannot_have_is_refused(call, hint):
    with pytest.raises(UsageError, match=re.escape(hint)):
        call()


def test_an_action_that_is_not_a_number_is_refused():
    env = MazeEnv()
    env.reset(seed=0)
    with pytest.raises(UsageError, match="action: expected two finite numbers"):
        env.step(np.array([np.nan, 0], np.float32))
