"""The episode that stands for a policy, as an animation."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ...envs.gif import encode
from ...envs.robot.params import RobotParams
from ...envs.robot.rendering import rendered
from ...envs.robot.view import captioned, stick_figures
from ...errors import UsageError

FRAMES = 200
"""Of an animation, at most."""
EVERY = 2
"""Control steps from one frame to the next."""


def load(run: Path) -> dict[str, np.ndarray] | None:
    """The episode that the last evaluation of a run kept."""
    path = run / "eval" / "shown_qpos.npy"
    return {path.stem: np.load(path, allow_pickle=False)} if path.exists() else None


def animate(params: RobotParams, episode: Mapping[str, np.ndarray]) -> bytes | None:
    """The episode as a GIF of stick figures, its beginning if it is long; none where Pillow is not installed."""
    if find_spec("PIL") is None:
        return None
    qpos, captions, time = _frames(params, episode)
    return encode(stick_figures(params.load(), qpos, captions), time)


def film(params: RobotParams, episode: Mapping[str, np.ndarray]) -> tuple[bytes | None, str]:
    """The same as MuJoCo renders it where there is OpenGL, and as stick figures otherwise; and who has drawn it."""
    if find_spec("PIL") is None:
        return None, "nobody: Pillow is not installed"
    qpos, captions, time = _frames(params, episode)
    try:
        pictures = rendered(params.load(), qpos)
    except UsageError as error:
        return encode(stick_figures(params.load(), qpos, captions), time), f"stick figures. {error}"
    return encode(captioned(pictures, captions), time), "MuJoCo"


def _frames(params: RobotParams, episode: Mapping[str, np.ndarray]) -> tuple[np.ndarray, list[str], int]:
    """Poses that are shown, what stands above each, and milliseconds from one to the next."""
    control, qpos = params.substeps * params.load().timestep, episode["shown_qpos"][::EVERY][:FRAMES]
    walked = qpos[:, 0] - qpos[0, 0]
    captions = [f"{i * EVERY * control:.1f} s   {x:+.2f} m" for i, x in enumerate(walked)]
    return qpos, captions, max(20, round(1000 * EVERY * control))
