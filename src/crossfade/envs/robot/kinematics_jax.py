"""Where the parts of a robot are, in JAX. Twin: kinematics_numpy.py."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .chains import Group, groups
from .chunks_jax import kept
from .model import Base, Frames, RobotModel
from .spatial_jax import apply, matmul, rotation_of

Pose = tuple[Float[Array, "3 3 ..."], Float[Array, "3 ..."]]
"""Rotation of a link, and its origin as seen from the base."""


def base(model: RobotModel, qpos: Float[Array, "*batch nq"], qvel: Float[Array, "*batch nv"]) -> Base:
    """Pose and motion of the base. A planar one with pitch b has the quaternion (cos(b / 2), 0, sin(b / 2), 0)."""
    if model.base == "free":
        return Base(qpos[..., :3], qpos[..., 3:7], qvel[..., :3], qvel[..., 3:6])
    x, z, pitch = jnp.moveaxis(qpos[..., :3], -1, 0)
    o = jnp.zeros_like(x)
    position = jnp.stack([x + model.offset[0], o + model.offset[1], z + model.offset[2]], -1)
    quaternion = jnp.stack([jnp.cos(pitch / 2), o, jnp.sin(pitch / 2), o], -1)
    velocity, angular = jnp.stack([qvel[..., 0], o, qvel[..., 1]], -1), jnp.stack([o, qvel[..., 2], o], -1)
    return Base(position, quaternion, velocity, angular)


def frames(model: RobotModel, qpos: Float[Array, "*batch nq"]) -> Frames:
    """Centre of mass, feet and links of robots."""
    where = base(model, qpos, jnp.zeros((*qpos.shape[:-1], model.nv), qpos.dtype))
    joints = _lanes(qpos)[model.nq - len(model.links) + 1 :]
    pose = kept(rotation_of(_lanes(where.quaternion))), jnp.zeros((3, joints.shape[1]), qpos.dtype)
    poses: dict[int, Pose] = {0: pose}
    for group in groups(model, str(qpos.dtype)):
        start = _side_by_side([poses[parent] for parent in group.parents])
        for links, here in zip(group.links, _along(group, joints[group.joints], start), strict=True):
            poses |= {link: (here[0][:, :, lane], here[1][:, lane]) for lane, link in enumerate(links)}
    point = lambda link, at: poses[link][1] + apply(poses[link][0], np.asarray(at, qpos.dtype)[:, None])
    com = sum(link.mass / model.mass * point(number, link.com) for number, link in enumerate(model.links))
    feet = jnp.stack([point(foot.link, foot.position) for foot in model.feet])
    links = jnp.stack([poses[number][1] for number in range(len(model.links))])
    shaped = lambda points: jnp.moveaxis(points, -1, 0).reshape(*qpos.shape[:-1], *points.shape[:-1])
    move = where.position[..., None, :]
    return Frames(where.position + shaped(com), move + shaped(feet), move + shaped(links))


def _lanes(numbers: Float[Array, "*batch n"]) -> Float[Array, "n lanes"]:
    """Batches as one last axis."""
    return numbers.reshape(-1, numbers.shape[-1]).T


def _side_by_side(poses: list[Pose]) -> Pose:
    rotations, origins = zip(*poses, strict=True)
    return jnp.stack(rotations, -2), jnp.stack(origins, -2)


def _along(group: Group, angle: Float[Array, "depth chains lanes"], pose: Pose) -> list[Pose]:
    """Poses of the links of chains, from the pose that each hangs from."""
    found = []
    rotation, origin = pose
    sine, rest = kept((jnp.sin(angle), 1 - jnp.cos(angle)))
    for i in range(len(angle)):
        origin = kept(origin + apply(rotation, group.position[i]))
        rotation = rotation if group.straight else matmul(rotation, group.rotation[i])
        turn = kept(group.turn[i] * sine[i][None, None] + group.turn2[i] * rest[i][None, None])
        rotation = kept(rotation + matmul(rotation, turn))
        found.append((rotation, origin))
    return found
