"""The maze as a Gymnasium environment: one ball, a step at a time, for the libraries that expect one.

Importing this file registers it, which Gymnasium does itself if it is named before the colon:

    gymnasium.make("crossfade.envs.maze.gymnasium_env:crossfade/Maze-v0", map="umaze", task=2)
"""

from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float, Float32

from ...errors import UsageError, nearest
from ...ranges import check_value, kinds
from .maze_numpy import Maze
from .params import RADIUS, MazeParams
from .view import ansi

try:
    gymnasium: Any = import_module("gymnasium")
except ModuleNotFoundError as error:
    raise UsageError("this environment needs Gymnasium: pip install 'crossfade[gymnasium]'.") from error

ID = "crossfade/Maze-v0"


class RenderModeError(UsageError, TypeError):
    """A way of rendering that is not there. Stable-Baselines3 asks for pictures, and goes without on a TypeError."""


class MazeEnv(gymnasium.Env):
    """See `MazeParams`. `info["success"]` says whether the goal is reached."""

    metadata = {"render_modes": ["ansi"], "render_fps": 10}

    def __init__(self, params: MazeParams | None = None, render_mode: str | None = None):
        if render_mode not in (None, "ansi"):
            raise RenderModeError(f"render_mode: expected 'ansi' or None, got {render_mode!r}.")
        self.params, self.render_mode = params or MazeParams(), render_mode
        self.maze, self.state = Maze(self.params), None
        rows, columns = self.params.walls.shape
        least, most = np.float32(1 + RADIUS), np.array([columns, rows], np.float32) - np.float32(1 + RADIUS)
        self.observation_space = gymnasium.spaces.Box(np.full(2, least), most, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "2"], dict[str, Any]]:
        """Begins near the start cell of the task; there are no options."""
        super().reset(seed=seed)
        if options:
            raise UsageError(f"options: expected none, got {sorted(options)}.")
        self.state = self.maze.begin(None, None, self.np_random.random(2, dtype=np.float32))
        return self.state.position.copy(), {"success": False}

    def step(
        self, action: Float[np.ndarray, "2"]
    ) -> tuple[Float32[np.ndarray, "2"], float, bool, bool, dict[str, Any]]:
        """(observation, reward, terminated, truncated, info)."""
        if self.state is None:
            raise UsageError("step: expected an episode under way, got none. Call reset() first.")
        if not np.isfinite(action).all():
            raise UsageError(f"action: expected two finite numbers, got {action}.")
        self.state, outcome = self.maze.step(None, None, self.state, action)
        ends = bool(outcome.terminated), bool(outcome.truncated)
        return self.state.position.copy(), float(outcome.reward), *ends, {"success": ends[0]}

    def render(self) -> str | None:
        """The maze and the ball in characters, if the mode is `ansi`."""
        if self.render_mode is None:
            return None
        return ansi(self.params, None if self.state is None else self.state.position, colour=False)


def make(render_mode: str | None = None, **fields: Any) -> MazeEnv:
    """What `gymnasium.make` calls: the fields of `MazeParams` by name."""
    known = kinds(MazeParams)
    for name, value in fields.items():
        if name not in known:
            raise UsageError(f"unknown setting {name!r}.{nearest(name, known)} Known: {', '.join(known)}.")
        check_value(name, value, known[name])
    return MazeEnv(MazeParams(**fields), render_mode)


if ID not in gymnasium.registry:
    gymnasium.register(ID, entry_point=f"{__name__}:make")
