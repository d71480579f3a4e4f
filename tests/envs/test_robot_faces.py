"""A robot for Gymnasium."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as check_gymnasium
from robot_world_cases import randomised
from stable_baselines3.common.env_checker import check_env as check_stable_baselines

from crossfade.envs.robot.gymnasium_env import ID, RobotEnv
from crossfade.envs.robot.params import RobotParams
from crossfade.envs.robot.robot_numpy import Robot
from crossfade.errors import UsageError
from default_run import few


@pytest.mark.parametrize("model", few(["stilt6", "sprig11"], "stilt6"))
def test_both_checkers_have_nothing_to_say(model):
    """Neither an error nor, warnings being errors, a warning."""
    env = gymnasium.make(ID, model=model, limit=20)
    check_gymnasium(env.unwrapped)
    check_stable_baselines(env.unwrapped)


def test_gymnasium_steps_are_those_of_the_world():
    params = randomised(limit=6)
    env, world, settings = RobotEnv(params), Robot(params), params.settings()
    seen, info = env.reset(seed=3)
    state = world.begin(None, settings, np.random.default_rng(3).random(world.start_numbers, dtype=np.float32))
    np.testing.assert_array_equal(seen, state.observation)
    np.testing.assert_array_equal(info["command"], state.command)
    rng, ended, t = np.random.default_rng(0), False, 0
    while not ended:
        action = rng.uniform(-1, 1, 6).astype(np.float32)
        seen, reward, terminated, truncated, told = env.step(action)
        state, outcome = world.step(None, settings, state, action)
        np.testing.assert_array_equal(seen, state.observation)
        assert reward == float(outcome.reward) and told["speed"] == float(outcome.told.speed)
        ended, t = terminated or truncated, t + 1
    assert t <= 6


def test_wrong_use_is_told():
    env = RobotEnv(RobotParams())
    with pytest.raises(UsageError, match="Call reset"):
        env.step(np.zeros(6, np.float32))
    env.reset(seed=0)
    with pytest.raises(UsageError, match="finite numbers"):
        env.step(np.full(6, np.nan, np.float32))
    with pytest.raises(UsageError, match="options: expected none"):
        env.reset(options={"a": 1})
    with pytest.raises(UsageError, match="render_mode"):
        RobotEnv(render_mode="human")
    with pytest.raises(UsageError, match="Did you mean 'physics'"):
        gymnasium.make(ID, physic="aba")


def test_a_frame_is_drawn():
    env = RobotEnv(RobotParams(), render_mode="rgb_array")
    assert env.render() is None
    env.reset(seed=0)
    assert env.render().shape == (240, 360, 3)
