"""MuJoCo itself, by `mujoco.rollout` and its threads. Twin: mujoco_jax.py."""

import copy
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float

from ..mjcf import compiled, ground_and_feet
from ..model import BASE_QVEL, Body, RobotModel, Variation

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic

mujoco: Any = import_module("mujoco")
rollout: Any = import_module("mujoco.rollout")
_APPLIED = int(mujoco.mjtState.mjSTATE_QFRC_APPLIED)


class Engine:
    """`physics=mujoco`. The warm start is (v' - v) / timestep: what the solver found, but for rounding.

    Masses are varied as they are, not what MuJoCo derives from them once for all: the softness of contacts is that of
    the model. C computes in float64 whatever the dtype.
    """

    def __init__(self, model: RobotModel):
        self.model = model
        self._nominal = compiled(model)
        self._touching = ground_and_feet(self._nominal, model)
        self._threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._data = [mujoco.MjData(self._nominal) for _ in range(self._threads)]
        self._pool = rollout.Rollout(nthread=self._threads if self._threads > 1 else 0)
        self._models: list[Any] = []  # one for each robot of the largest batch so far
        self._varied = np.empty((0, len(Variation._fields)))  # what each of them is varied by

    def step(self, body: Body, torque: Float[Array, "*batch nu"], variation: Variation) -> Body:
        """The robots one `timestep` later."""
        model = self.model
        qpos, qvel, warmstart, drive = (_rows(part) for part in (*body, torque))
        robots = len(qpos)
        varied = np.stack([np.reshape(part, -1) for part in variation], -1).astype(np.float64)
        finite = np.asarray(np.isfinite(np.concatenate([qpos, qvel, warmstart, drive, varied], -1)).all(-1))
        self._vary(varied, finite)
        terrain = varied[:, 3:] * np.eye(model.nq)[model.up]  # MuJoCo's ground stays at 0: the robots go down
        before = np.zeros((robots, mujoco.mj_stateSize(self._nominal, mujoco.mjtState.mjSTATE_FULLPHYSICS)))
        before[:, 1 : 1 + model.nq] = np.where(finite[:, None], qpos - terrain, model.home)
        before[:, 1 + model.nq : 1 + model.nq + model.nv] = np.where(finite[:, None], qvel, 0)
        force = np.zeros((robots, 1, model.nv))
        force[:, 0, list(model.joint_qvel)] = np.where(finite[:, None], drive, 0)
        after, sensors = np.empty((robots, 1, before.shape[1])), np.empty((robots, 1, self._nominal.nsensordata))
        self._pool.rollout(
            self._models[:robots],
            self._data,
            before,
            force,
            control_spec=_APPLIED,
            skip_checks=True,
            nstep=1,
            initial_warmstart=np.where(finite[:, None], warmstart, 0),
            state=after,
            sensordata=sensors,
        )
        after[~finite] = np.nan
        place, speed = after[:, 0, 1 : 1 + model.nq], after[:, 0, 1 + model.nq : 1 + model.nq + model.nv]
        found = Body(place + terrain, speed, (speed - qvel) / model.timestep)
        return Body(*(new.astype(old.dtype).reshape(old.shape) for new, old in zip(found, body, strict=True)))

    def _vary(self, wanted: Float[np.ndarray, "robots 4"], finite: Bool[np.ndarray, " robots"]) -> None:
        """Changes the models of the robots whose variation is another than in the last step."""
        more = len(wanted) - len(self._models)
        if more > 0:
            self._models += [copy.copy(self._nominal) for _ in range(more)]
            self._varied = np.concatenate([self._varied, np.full((more, wanted.shape[1]), np.nan)])
        nominal, joints = self._nominal, slice(BASE_QVEL[self.model.base], None)
        for robot in np.flatnonzero((self._varied[: len(wanted)] != wanted).any(-1) & finite):
            mj, (friction, mass, damping, _) = self._models[robot], wanted[robot]
            mj.geom_friction[self._touching, 0] = friction
            mj.body_mass[:] = nominal.body_mass * mass
            mj.body_subtreemass[:] = nominal.body_subtreemass * mass
            mj.body_inertia[:] = nominal.body_inertia * mass
            mj.dof_damping[joints] = nominal.dof_damping[joints] + damping
            self._varied[robot] = wanted[robot]


def _rows(part: Float[Array, "*batch n"]) -> Float[np.ndarray, "robots n"]:
    return np.ascontiguousarray(np.reshape(part, (-1, part.shape[-1])), np.float64)
