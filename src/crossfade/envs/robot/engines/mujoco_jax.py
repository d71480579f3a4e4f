"""MuJoCo in JAX, by MJX. Twin: mujoco_numpy.py."""

import contextlib
import functools
import io
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import UsageError
from ..mjcf import compiled, ground_and_feet
from ..model import BASE_QVEL, Body, RobotModel, Variation


@dataclass(frozen=True)
class Engine:
    """`physics=mujoco`. The warm start is (v' - v) / timestep: what the solver found, but for rounding.

    Masses are varied as they are, not what MuJoCo derives from them once for all: the softness of contacts is that of
    the model. C computes in float64 whatever the dtype.
    """

    model: RobotModel

    def step(self, body: Body, torque: Float[Array, "*batch nu"], variation: Variation) -> Body:
        """The robots one `timestep` later."""
        batch = body.qpos.ndim - 1
        robots = jax.tree.map(lambda part: part.reshape(-1, *part.shape[batch:]), (body, torque, variation))
        after = jax.vmap(functools.partial(_step, self.model))(*robots)
        return jax.tree.map(lambda new, old: new.reshape(old.shape).astype(old.dtype), after, body)


def _step(model: RobotModel, body: Body, torque: Float[Array, " nu"], variation: Variation) -> Body:
    """One robot."""
    mjx = _mjx()
    mj, touching, nominal = _nominal(model, str(body.qpos.dtype), str(jnp.result_type(float)))
    joints = np.arange(len(mj.dof_damping)) >= BASE_QVEL[model.base]
    varied = mj.tree_replace(
        {
            "geom_friction": mj.geom_friction.at[touching, 0].set(variation.friction),
            "body_mass": mj.body_mass * variation.mass,
            "body_subtreemass": mj.body_subtreemass * variation.mass,
            "body_inertia": mj.body_inertia * variation.mass,
            "dof_damping": jnp.where(joints, mj.dof_damping + variation.damping, mj.dof_damping),
        }
    )
    ground = np.eye(model.nq, dtype=body.qpos.dtype)[model.up]  # MuJoCo's stays at 0: the robots go down
    terrain = variation.terrain * ground
    force = jnp.zeros_like(body.qvel).at[np.array(model.joint_qvel)].set(torque)
    before = nominal.replace(
        qpos=body.qpos - terrain,
        qvel=body.qvel,
        qacc_warmstart=body.warmstart,
        qfrc_applied=force,
        time=jnp.zeros_like(nominal.time),
    )
    with jax.numpy_rank_promotion("allow"):
        after = mjx.step(varied, before)
    return Body(after.qpos + terrain, after.qvel, (after.qvel - body.qvel) / model.timestep)


def _mjx() -> Any:
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # it prints that its back end for GPUs is not installed
            return import_module("mujoco.mjx")
    except ModuleNotFoundError as error:
        raise UsageError("physics=mujoco in JAX needs MJX: pip install 'crossfade[mjx]'.") from error


@functools.cache
def _nominal(model: RobotModel, dtype: str, widest: str) -> tuple[Any, Any, Any]:
    """MJX's model and data of a robot, in this dtype; and the geoms that are the ground and the feet.

    `widest` is what JAX allows at the time: MJX makes its own arrays of it.
    """
    mjx, mj = _mjx(), compiled(model)
    cast = lambda part: part.astype(dtype) if isinstance(part, jax.Array) and part.dtype.kind == "f" else part
    with jax.ensure_compile_time_eval():
        device = mjx.put_model(mj)
        data = mjx.make_data(device)
    return jax.tree.map(cast, device), np.array(ground_and_feet(mj, model)), jax.tree.map(cast, data)
