"""Robots anywhere, and their dynamics once more: by Jacobians and Newton's and Euler's equations, link by link."""

from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from crossfade.envs.robot import Body, RobotModel, Variation, load
from crossfade.envs.robot.mjcf import compiled

NAMES = ("sprig11", "tuft8", "stilt6")


def nominal(model: RobotModel, *batch: int, **fields: Any) -> Variation:
    """The robot as it is, float64."""
    plain = {"friction": model.friction, "mass": 1.0, "damping": 0.0, "terrain": 0.0} | fields
    return Variation(**{name: np.broadcast_to(np.asarray(number, np.float64), batch) for name, number in plain.items()})


def various(model: RobotModel, n: int, seed: int = 5) -> Variation:
    """The robot as it is, then others."""
    rng = np.random.default_rng(seed)
    low, high = np.array([(0.4, 1.25), (0.85, 1.15), (0.0, 0.5), (-0.02, 0.02)]).T
    numbers = rng.uniform(low, high, (n, 4))
    numbers[0] = model.friction, 1, 0, 0
    return Variation(*numbers.T.copy())


def scattered(model: RobotModel, n: int, *, up: float = 0.0, seed: int = 0, spin: float = 0.5) -> Body:
    """Robots near home, in motion, the base turned somewhat; `up` above where they stand."""
    rng = np.random.default_rng(seed)
    qpos = np.tile(np.array(model.home), (n, 1))
    first = model.nq - len(model.links) + 1
    qpos[:, first:] += rng.uniform(-0.2, 0.2, (n, len(model.links) - 1))
    if model.base == "free":
        qpos[:, 3:7] += rng.uniform(-0.1, 0.1, (n, 4))
        qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
    qpos[:, 2 if model.base == "free" else 1] += up
    return Body(qpos, rng.normal(0, spin, (n, model.nv)), np.zeros((n, model.nv)))


def unlimited(model: RobotModel) -> RobotModel:
    """The same robot, whose joints have no limits."""
    free = (replace(link, lower=-np.inf, upper=np.inf) for link in model.links[1:])
    return replace(model, links=(model.links[0], *free))


def in_the_air(model: RobotModel) -> Any:
    """MuJoCo's model with implicit damping and without limits: what `aba` computes in the air."""
    import mujoco

    mj, bits = compiled(model), mujoco.mjtDisableBit
    mj.opt.disableflags = mj.opt.disableflags & ~int(bits.mjDSBL_EULERDAMP) | int(bits.mjDSBL_LIMIT)
    return mj


def rodrigues(axis: Any, angle: float) -> Float[np.ndarray, "3 3"]:
    """The rotation about an axis."""
    k = np.cross(np.eye(3), axis)
    return np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * k @ k


def quaternion_matrix(q: Any) -> Float[np.ndarray, "3 3"]:
    """Rotates by v -> q v q*, column by column."""
    w, u = q[0], np.asarray(q[1:])
    return np.stack([(w * w - u @ u) * e + 2 * (u @ e) * u + 2 * w * np.cross(u, e) for e in np.eye(3)], 1)


def dynamics(model: RobotModel, qpos: Any, qvel: Any) -> tuple[Float[np.ndarray, "v v"], Float[np.ndarray, " v"]]:
    """Mass matrix and bias force of one robot: sums over links of J^T m J and of J^T times what moves without qacc."""
    free = model.base == "free"
    nb = 6 if free else 3
    turn = quaternion_matrix(qpos[3:7]) if free else rodrigues((0, 1, 0), qpos[2])
    place = np.array(qpos[:3]) if free else np.array([qpos[0], 0, qpos[1]]) + model.offset
    linear, angular = np.zeros((3, model.nv)), np.zeros((3, model.nv))
    if free:
        linear[:, :3], angular[:, 3:6] = np.eye(3), turn
    else:
        linear[0, 0], linear[2, 1], angular[1, 2] = 1, 1, 1
    frames = [(turn, place, linear, angular, np.zeros(3), np.zeros(3))]  # ..., accelerations without qacc
    for number, link in enumerate(model.links[1:]):
        turn, place, linear, angular, along, about = frames[link.parent]
        omega, arm = angular @ qvel, turn @ np.array(link.position)
        place = place + arm
        along = along + np.cross(about, arm) + np.cross(omega, np.cross(omega, arm))
        linear = linear + np.cross(angular.T, arm).T
        axis = turn @ np.array(link.rotation) @ np.array(link.axis)
        angular = angular.copy()
        angular[:, nb + number] += axis
        about = about + np.cross(omega, axis * qvel[nb + number])
        turn = turn @ np.array(link.rotation) @ rodrigues(link.axis, qpos[len(qpos) - len(model.links) + 1 + number])
        frames.append((turn, place, linear, angular, along, about))
    mass, bias = np.diag([0.0] * nb + [link.armature for link in model.links[1:]]), np.zeros(model.nv)
    for link, (turn, _, linear, angular, along, about) in zip(model.links, frames, strict=True):
        omega, arm = angular @ qvel, turn @ np.array(link.com)
        heavy = turn @ np.array(link.inertia) @ turn.T
        moved = linear + np.cross(angular.T, arm).T
        pull = along + np.cross(about, arm) + np.cross(omega, np.cross(omega, arm)) + [0, 0, model.gravity]
        mass += link.mass * moved.T @ moved + angular.T @ heavy @ angular
        bias += link.mass * moved.T @ pull + angular.T @ (heavy @ about + np.cross(omega, heavy @ omega))
    return mass, bias


def robots(names: tuple[str, ...] = NAMES) -> list[RobotModel]:
    return [load(name) for name in names]
