"""Features of a motion that a discriminator judges, in JAX. Twin: features_numpy.py.

Plain arrays in: positions, velocities, and how high the feet are. The reference and the policy go through the same
function, so that no feature can be in other units on one side.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .skeleton import Skeleton

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
    contact = jnp.clip(1 - clearance / NEAR, 0, 1)
    if skeleton.base == "planar":
        root = qvel[..., :2], qvel[..., 2:3], qpos[..., 1:2]
        return jnp.concatenate([qpos[..., 3:], qvel[..., 3:], *root, contact], -1)
    quaternion = qpos[..., 3:7]
    heading = yaw(quaternion)
    turning = rotated(quaternion, qvel[..., 3:6])
    root = _turned(-heading, qvel[..., :3]), _turned(-heading, turning), qpos[..., 2:3]
    return jnp.concatenate([qpos[..., 7:], qvel[..., 6:], *root, contact], -1)


def yaw(quaternion: Float[Array, "*n 4"]) -> Float[Array, "*n"]:
    """psi = atan2(2 (w z + x y), 1 - 2 (y^2 + z^2)) of a unit quaternion (w, x, y, z)."""
    w, x, y, z = jnp.moveaxis(quaternion, -1, 0)
    return jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))


def rotated(quaternion: Float[Array, "*n 4"], v: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """R v = v + 2 w (u x v) + 2 u x (u x v) for the unit quaternion (w, u)."""
    w, u = quaternion[..., :1], quaternion[..., 1:]
    across = jnp.cross(u, v)
    return v + 2 * (w * across + jnp.cross(u, across))


def transitions(
    before: Float[Array, "*n f"],
    after: Float[Array, "*n f"],
    mean: Float[Array, " f"],
    deviation: Float[Array, " f"],
) -> Float[Array, "*n x"]:
    """(z(Phi(s)), z(Phi(s'))): both states of a transition, normalised by the statistics of the reference.

    z(Phi) = (Phi - mean) / deviation, clipped to [-FARTHEST, FARTHEST].
    """
    wide = lambda v: jnp.broadcast_to(v, before.shape)
    normal = lambda phi: jnp.clip((phi.astype(mean.dtype) - wide(mean)) / wide(deviation), -FARTHEST, FARTHEST)
    return jnp.concatenate([normal(before), normal(after)], -1)


def _turned(angle: Float[Array, "*n"], v: Float[Array, "*n 3"]) -> Float[Array, "*n 3"]:
    """v turned about z."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([c * v[..., 0] - s * v[..., 1], s * v[..., 0] + c * v[..., 1], v[..., 2]], -1)
