"""The links and the feet of a robot, from MuJoCo's compiled model."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Float

from .mjcf_names import kind_of, matrix, mujoco_module, refuse, vector
from .model import ZERO, Foot, Link

Place = tuple[int, Float[np.ndarray, "3 3"], Float[np.ndarray, "3"]]
"""Of a body the link that it belongs to, and its rotation and position in that link's frame."""


def links_of(mj: Any, base: str) -> tuple[tuple[Link, ...], list[Place]]:
    """The links; bodies without joints are parts of what they are welded to."""
    places: list[Place] = [(-1, np.eye(3), np.zeros(3))]
    holders: list[int] = []
    for body in range(1, mj.nbody):
        link, turned, at = places[mj.body_parentid[body]]
        turned, at = turned @ _rotation(mj.body_quat[body]), at + turned @ mj.body_pos[body]
        if body == 1 or mj.body_jntnum[body]:
            holders.append(body)
            anchor = np.zeros(3) if body == 1 else mj.jnt_pos[mj.body_jntadr[body]]
            places.append((len(holders) - 1, np.eye(3), -anchor))
        else:
            places.append((link, turned, at))
    return tuple(_link(mj, body, base, places) for body in holders), places


def _link(mj: Any, body: int, base: str, places: list[Place]) -> Link:
    number = places[body][0]
    parent, turned, at = places[mj.body_parentid[body]]
    rotation = turned @ _rotation(mj.body_quat[body])
    parts = list(_parts(mj, number, places))
    mass = sum(part for part, _, _ in parts)
    com = sum(part * centre for part, centre, _ in parts) / mass
    inertia = sum(own + part * _parallel(centre - com) for part, centre, own in parts)
    common = {"name": mj.body(body).name, "mass": float(mass), "com": vector(com), "inertia": matrix(inertia)}
    if body == 1:
        return Link(parent=-1, position=ZERO, rotation=matrix(np.eye(3)), axis=ZERO, **common)
    joint, dof = int(mj.body_jntadr[body]), int(mj.body_dofadr[body])
    lower, upper = mj.jnt_range[joint] if mj.jnt_limited[joint] else (-np.inf, np.inf)
    return Link(
        parent=parent,
        position=vector(at + turned @ mj.body_pos[body] + rotation @ mj.jnt_pos[joint]),
        rotation=matrix(rotation),
        axis=vector(mj.jnt_axis[joint]),
        damping=float(mj.dof_damping[dof]),
        armature=float(mj.dof_armature[dof]),
        lower=float(lower),
        upper=float(upper),
        **common,
    )


def _parts(
    mj: Any, link: int, places: list[Place]
) -> Iterator[tuple[float, Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]]:
    """Mass, centre and inertia of the bodies that a link is made of."""
    for body in range(1, mj.nbody):
        owner, turned, at = places[body]
        if owner == link:
            axes = turned @ _rotation(mj.body_iquat[body])
            inertia = axes @ np.diag(mj.body_inertia[body]) @ axes.T
            yield float(mj.body_mass[body]), at + turned @ mj.body_ipos[body], inertia


def foot_of(mj: Any, geom: int, places: list[Place]) -> Foot:
    link, turned, at = places[mj.geom_bodyid[geom]]
    name, kind = mj.geom(geom).name, kind_of(mj, "geom", geom)
    refuse(kind != "sphere" or link < 0, f"feet: expected spheres of the robot, got {name!r}, a {kind}. Name spheres.")
    return Foot(name, link, vector(at + turned @ mj.geom_pos[geom]), float(mj.geom_size[geom, 0]))


def _rotation(quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    matrix = np.zeros(9)
    mujoco_module().mju_quat2Mat(matrix, quaternion)
    return matrix.reshape(3, 3)


def _parallel(away: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """Inertia of a unit mass at `away`: |r|^2 1 - r r^T."""
    return away @ away * np.eye(3) - np.outer(away, away)
