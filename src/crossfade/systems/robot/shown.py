"""The episode that stands for a policy, as an animation."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from ...envs.gif import encode
from ...envs.robot.params import RobotParams
from ...envs.robot.view import stick_figures

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
    model = params.load()
    control, qpos = params.substeps * model.timestep, episode["shown_qpos"][::EVERY][:FRAMES]
    walked = qpos[:, 0] - qpos[0, 0]
    captions = [f"{i * EVERY * control:.1f} s   {x:+.2f} m" for i, x in enumerate(walked)]
    return encode(stick_figures(model, qpos, captions), max(20, round(1000 * EVERY * control)))
