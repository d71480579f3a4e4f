"""Where the parts of a robot are, in NumPy. Twin: kinematics_jax.py."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from .chains import Group, groups
from .model import Base, Frames, RobotModel
from .spatial_numpy import apply, matmul, rotation_of

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes

Pose = tuple[Float[Array, "3 3 ..."], Float[Array, "3 ..."]]
"""Rotation of a link, and its origin as seen from the base."""


def base(model: RobotModel, qpos: Float[Array, "*batch nq"], qvel: Float[Array, "*batch nv"]) -> Base:
    """Pose and motion of the base. A planar one with pitch b has the quaternion (cos(b / 2), 0, sin(b / 2), 0)."""
    if model.base == "free":
        return Base(qpos[..., :3], qpos[..., 3:7], qvel[..., :3], qvel[..., 3:6])
    x, z, pitch = np.moveaxis(qpos[..., :3], -1, 0)
    o = np.zeros_like(x)
    position = np.stack([x, o, z], -1) + np.asarray(model.offset, qpos.dtype)
    quaternion = np.stack([np.cos(pitch / 2), o, np.sin(pitch / 2), o], -1)
    velocity, angular = np.stack([qvel[..., 0], o, qvel[..., 1]], -1), np.stack([o, qvel[..., 2], o], -1)
    return Base(position, quaternion, velocity, angular)


def frames(model: RobotModel, qpos: Float[Array, "*batch nq"]) -> Frames:
    """Centre of mass, feet and links of robots."""
    where = base(model, qpos, np.zeros((*qpos.shape[:-1], model.nv), qpos.dtype))
    joints = _lanes(qpos)[model.nq - len(model.links) + 1 :]
    pose = rotation_of(_lanes(where.quaternion)), np.zeros((3, joints.shape[1]), qpos.dtype)
    poses: dict[int, Pose] = {0: pose}
    for group in groups(model, str(qpos.dtype)):
        start = _side_by_side([poses[parent] for parent in group.parents])
        for links, here in zip(group.links, _along(group, joints[group.joints], start), strict=True):
            poses |= {link: (here[0][:, :, lane], here[1][:, lane]) for lane, link in enumerate(links)}
    point = lambda link, at: poses[link][1] + apply(poses[link][0], np.asarray(at, qpos.dtype)[:, None])
    com = sum(link.mass / model.mass * point(number, link.com) for number, link in enumerate(model.links))
    feet = np.stack([point(foot.link, foot.position) for foot in model.feet])
    links = np.stack([poses[number][1] for number in range(len(model.links))])
    shaped = lambda points: np.moveaxis(points, -1, 0).reshape(*qpos.shape[:-1], *points.shape[:-1])
    move = where.position[..., None, :]
    return Frames(where.position + shaped(com), move + shaped(feet), move + shaped(links))


def _lanes(numbers: Float[Array, "*batch n"]) -> Float[Array, "n lanes"]:
    """Batches as one last axis."""
    return numbers.reshape(-1, numbers.shape[-1]).T


def _side_by_side(poses: list[Pose]) -> Pose:
    rotations, origins = zip(*poses, strict=True)
    return np.stack(rotations, -2), np.stack(origins, -2)


def _along(group: Group, angle: Float[Array, "depth chains lanes"], pose: Pose) -> list[Pose]:
    """Poses of the links of chains, from the pose that each hangs from."""
    found = []
    rotation, origin = pose
    for i in range(len(angle)):
        origin = origin + apply(rotation, group.position[i])
        rotation = rotation if group.straight else matmul(rotation, group.rotation[i])
        turn = group.turn[i] * np.sin(angle[i]) + group.turn2[i] * (1 - np.cos(angle[i]))
        rotation = rotation + matmul(rotation, turn)
        found.append((rotation, origin))
    return found
