"""Features of a motion that a discriminator judges, in NumPy. Twin: features_jax.py.

Plain arrays in: positions, velocities, and how high the feet are. The reference and the policy go through the same
function, so that no feature can be in other units on one side.
"""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from .skeleton import Skeleton

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes

NEAR = 0.02
"""Metres above the ground at which a foot has no contact any more."""
FARTHEST = 5.0
"""Deviations from the mean at which a feature is clipped."""


def features(
    qpos: Float[Array, "*n q"],
    qvel: Float[Array, "*n v"],
    clearance: Float[Array, "*n feet"],
    skeleton: Skeleton,
) -> Float[Array, "*n f"]:
    """Phi(s): joint positions and velocities, velocity and turning of the root in its heading frame, its height, and
    contacts of the feet.

    The heading frame is the world turned by the root's yaw psi about z: R_z(-psi) v, and R_z(-psi) R omega for the
    angular velocity omega of the base's own frame. A planar root has no yaw. Contact is 1 - c / NEAR, clipped to
    [0, 1], at a clearance c of the foot above the ground.
    """
    contact = np.clip(1 - clearance / NEAR, 0, 1)
    if skeleton.base == "planar":
        root = qvel[..., :2], qvel[..., 2:3], qpos[..., 1:2]
        return np.concatenate([qpos[..., 3:], qvel[..., 3:], *root, contact], -1)
    quaternion = qpos[..., 3:7]
    heading = yaw(quaternion)
    turning = rotated(quaternion, qvel[..., 3:6])
    root = _turned(-heading, qvel[..., :3]), _turned(-heading, turning), qpos[..., 2:3]
    return np.concatenate([qpos[..., 7:], qvel[..., 6:], *root, contact], -1)


def yaw(quaternion: Float[Array, "*n 4"]) -> Float[Array, "*n"]:
    """psi = atan2(2 (w z + x y), 1 - 2 (y^2 + z^2)) of a unit quaternion (w, x, y, z)."""
    w, x, y, z = np.moveaxis(quaternion, -1, 0)
    return np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def rotated(quaternion: Float[Array, "*n 4"], v: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """R v = v + 2 w (u x v) + 2 u x (u x v) for the unit quaternion (w, u)."""
    w, u = quaternion[..., :1], quaternion[..., 1:]
    across = np.cross(u, v)
    return v + 2 * (w * across + np.cross(u, across))


def transitions(
    before: Float[Array, "*n f"],
    after: Float[Array, "*n f"],
    mean: Float[Array, " f"],
    deviation: Float[Array, " f"],
) -> Float[Array, "*n x"]:
    """(z(Phi(s)), z(Phi(s'))): both states of a transition, normalised by the statistics of the reference.

    z(Phi) = (Phi - mean) / deviation, clipped to [-FARTHEST, FARTHEST].
    """
    normal = lambda phi: np.clip((phi.astype(mean.dtype) - mean) / deviation, -FARTHEST, FARTHEST)
    return np.concatenate([normal(before), normal(after)], -1)


def _turned(angle: Float[Array, "*n"], v: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """v turned about z."""
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * v[..., 0] - s * v[..., 1], s * v[..., 0] + c * v[..., 1], v[..., 2]], -1)
