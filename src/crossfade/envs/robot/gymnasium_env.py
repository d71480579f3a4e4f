"""A robot as a Gymnasium environment, a step at a time, for the libraries that expect one.

Importing this file registers it, which Gymnasium does itself if it is named before the colon:

    gymnasium.make("crossfade.envs.robot.gymnasium_env:crossfade/Robot-v0", model="stilt6")
"""

from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from ...errors import UsageError, nearest
from ...ranges import check_value, kinds
from ..gif import Frame
from .params import RobotParams
from .robot_numpy import Robot
from .view import stick_figures

try:
    gymnasium: Any = import_module("gymnasium")
except ModuleNotFoundError as error:
    raise UsageError("this environment needs Gymnasium: pip install 'crossfade[gymnasium]'.") from error

ID = "crossfade/Robot-v0"
LARGEST = 1e6
"""Bound of the observation, far beyond what a robot sees before its episode ends: checkers want one."""


class RenderModeError(UsageError, TypeError):
    """A way of rendering that is not there. Stable-Baselines3 asks for pictures, and goes without on a TypeError."""


class RobotEnv(gymnasium.Env):
    """See `RobotParams`. `info` holds what a step tells: every term of the reward, speed, torque."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 40}

    def __init__(self, params: RobotParams | None = None, render_mode: str | None = None):
        if render_mode not in (None, "rgb_array"):
            raise RenderModeError(f"render_mode: expected 'rgb_array' or None, got {render_mode!r}.")
        self.params, self.render_mode = params or RobotParams(), render_mode
        self.robot, self.settings, self.state = Robot(self.params), self.params.settings(), None
        self.observation_space = gymnasium.spaces.Box(-LARGEST, LARGEST, (self.robot.observation_dim,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (self.robot.model.nu,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, " o"], dict[str, Any]]:
        """Begins near the home pose; there are no options."""
        super().reset(seed=seed)
        if options:
            raise UsageError(f"options: expected none, got {sorted(options)}.")
        uniform = self.np_random.random(self.robot.start_numbers, dtype=np.float32)
        self.state = self.robot.begin(None, self.settings, uniform)
        return self.state.observation.copy(), {"command": self.state.command.copy()}

    def step(
        self, action: Float[np.ndarray, " nu"]
    ) -> tuple[Float32[np.ndarray, " o"], float, bool, bool, dict[str, Any]]:
        """(observation, reward, terminated, truncated, info)."""
        if self.state is None:
            raise UsageError("step: expected an episode under way, got none. Call reset() first.")
        if not np.isfinite(action).all():
            raise UsageError(f"action: expected {len(action)} finite numbers, got {action}.")
        self.state, outcome = self.robot.step(None, self.settings, self.state, np.clip(action, -1, 1))
        told = {name: float(number) for name, number in outcome.told._asdict().items()}
        ends = bool(outcome.terminated), bool(outcome.truncated)
        return self.state.observation.copy(), float(outcome.reward), *ends, told

    def render(self) -> Frame | None:
        """The robot as a stick figure, if the mode is `rgb_array`."""
        if self.render_mode is None or self.state is None:
            return None
        return stick_figures(self.robot.model, self.state.body.qpos[None], [""])[0]


def make(render_mode: str | None = None, **fields: Any) -> RobotEnv:
    """What `gymnasium.make` calls: the fields of `RobotParams` by name."""
    known = kinds(RobotParams)
    for name, value in fields.items():
        if name not in known:
            raise UsageError(f"unknown setting {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")
        check_value(name, value, known[name])
    return RobotEnv(RobotParams(**fields), render_mode)


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=f"{__name__}:make")
