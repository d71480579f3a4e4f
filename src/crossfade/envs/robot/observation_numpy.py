"""What a robot sees, in NumPy. Twin: observation_jax.py. The rules are in params.py."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from .kinematics_numpy import base, frames
from .model import Body, RobotModel
from .state import Motion

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes


def rotation(quaternion: Float[Array, "*batch 4"]) -> Float[Array, "*batch 3 3"]:
    """The matrix that turns vectors of the base's frame into those of the world."""
    w, x, y, z = (quaternion[..., i] for i in range(4))
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)),
        (2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)),
        (2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)),
    )
    return np.stack([np.stack(row, -1) for row in rows], -2)


def motion(model: RobotModel, body: Body) -> Motion:
    """How a body stands and moves; com = R^T (centre of mass - base), the heading is R e_x without its height."""
    position, quaternion, linear, angular = base(model, body.qpos, body.qvel)
    w, x, y, z = (quaternion[..., i] for i in range(4))
    turned, com = rotation(quaternion), frames(model, body.qpos).com
    ahead = turned[..., :2, 0]
    ahead = ahead / np.sqrt((ahead * ahead).sum(-1, keepdims=True) + 1e-12)
    return Motion(
        gravity=-turned[..., 2, :],
        height=position[..., 2],
        pitch=np.arcsin(np.clip(2 * (w * y - z * x), -1, 1)),
        roll=np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)),
        com=(turned * (com - position)[..., :, None]).sum(-2),
        forward=linear[..., 0] * ahead[..., 0] + linear[..., 1] * ahead[..., 1],
        sideways=linear[..., 1] * ahead[..., 0] - linear[..., 0] * ahead[..., 1],
        turning=(turned[..., 2, :] * angular).sum(-1),
    )


def observation(
    model: RobotModel,
    body: Body,
    motion: Motion,
    action: Float[Array, "*batch nu"],
    phase: Float[Array, "*batch"],
    command: Float[Array, "*batch 3"] | None,
) -> Float[Array, "*batch numbers"]:
    """gravity, q, q', last action, sin and cos of the phase, height, pitch, roll, com; the command if it is given."""
    places, speeds = np.asarray(model.joint_qpos), np.asarray(model.joint_qvel)
    extras = np.stack([np.sin(phase), np.cos(phase), motion.height, motion.pitch, motion.roll], -1)
    parts = [motion.gravity, body.qpos[..., places], body.qvel[..., speeds], action, extras, motion.com]
    return np.concatenate([*parts, *([] if command is None else [command])], -1)
