"""MuJoCo's own pictures of a robot, where there is OpenGL: `python -m crossfade.envs.robot.rendering FOLDER` draws.

MuJoCo chooses its OpenGL as it is imported, by MUJOCO_GL, and a driver may bring down its process: so pictures are
drawn in one of their own. It reads `robot.mjb` and `qpos.npy` from the folder and leaves `frames.npy` there.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ...errors import UsageError
from ..gif import Frame
from .model import RobotModel

WIDTH, HEIGHT = 360, 240  # of a frame, in pixels
WAYS = ("egl", "osmesa")
"""What MUJOCO_GL may say where there is no screen."""
SKY, MARKS = (0.98, 0.976, 0.96), (0.69, 0.667, 0.62, 1.0)
MARK, NEAR = 0.5, 3.0  # metres between two marks on the ground, and from the robot to the last one
SECONDS = 120


def rendered(model: RobotModel, qpos: Float[np.ndarray, "n nq"], ways: Sequence[str] | None = None) -> list[Frame]:
    """The robot from its right side, the camera beside its base; UsageError where there is no OpenGL.

    `ways` are values of MUJOCO_GL, tried one after the other: that of the environment, or else `WAYS`.
    """
    own, failed = os.environ.get("MUJOCO_GL"), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "robot.mjb").write_bytes(model.compiled)
        np.save(folder / "qpos.npy", qpos)
        for way in ways or ((own,) if own else WAYS):
            command = [sys.executable, "-m", __name__, name]
            try:
                done = subprocess.run(
                    command, env=os.environ | {"MUJOCO_GL": way}, capture_output=True, text=True, timeout=SECONDS
                )
            except subprocess.TimeoutExpired:
                failed[way] = f"no picture in {SECONDS} s"
                continue
            if not done.returncode:
                return list(np.load(folder / "frames.npy", allow_pickle=False))
            failed[way] = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    said = "; ".join(f"{way}: {error}" for way, error in failed.items())
    raise UsageError(
        f"rendering: expected OpenGL without a screen, got {said}. Install EGL (libegl1) or OSMesa (libosmesa6), or "
        "use the stick figures, which need none."
    )


def draw(mj: Any, qpos: Float[np.ndarray, "n nq"]) -> list[Frame]:
    """Pictures of MuJoCo's model in these poses, by the OpenGL of this process."""
    mujoco: Any = import_module("mujoco")
    data, camera = mujoco.MjData(mj), mujoco.MjvCamera()
    data.qpos[:] = qpos[0]
    mujoco.mj_forward(mj, data)
    camera.azimuth, camera.elevation, camera.distance = 90, -24, 4 * max(0.3, float(data.xpos[1, 2]))
    mj.vis.headlight.ambient[:], mj.vis.headlight.diffuse[:] = 0.4, 0.5
    mj.vis.rgba.fog[:3] = SKY  # the ground fades into it, and above there is nothing else
    mj.vis.map.fogstart, mj.vis.map.fogend = np.array([1.2, 2.2]) * camera.distance / mj.stat.extent
    pictures = []
    with mujoco.Renderer(mj, HEIGHT, WIDTH) as renderer:
        for place in qpos:
            data.qpos[:] = place
            mujoco.mj_forward(mj, data)
            base = data.xpos[1]
            camera.lookat[:] = base * (1, 1, 0.7)
            data.light_xpos[:, :2] += base[:2]
            renderer.update_scene(data, camera)
            renderer.scene.flags[mujoco.mjtRndFlag.mjRND_FOG] = True
            _mark(mujoco, renderer.scene, float(base[0]))
            pictures.append(renderer.render().copy())
    return pictures


def _mark(mujoco: Any, scene: Any, middle: float) -> None:
    """Lines across the ground, so that it is seen to pass by."""
    for x in np.arange(np.ceil((middle - NEAR) / MARK), np.floor((middle + NEAR) / MARK) + 1) * MARK:
        size, at, turned = np.array([0.008, NEAR, 5e-4]), np.array([x, 0.0, 0.0]), np.eye(3).ravel()
        mujoco.mjv_initGeom(
            scene.geoms[scene.ngeom], mujoco.mjtGeom.mjGEOM_BOX, size, at, turned, np.array(MARKS, np.float32)
        )
        scene.ngeom += 1


if __name__ == "__main__":
    given = Path(sys.argv[1])
    robot = import_module("mujoco").MjModel.from_binary_path(str(given / "robot.mjb"))
    np.save(given / "frames.npy", np.stack(draw(robot, np.load(given / "qpos.npy", allow_pickle=False))))
