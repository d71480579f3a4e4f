"""What a step of a robot is worth and when it has fallen, in NumPy. Twin: reward_jax.py. The rules are in params.py."""

from dataclasses import astuple
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from .model import Body, RobotModel
from .params import RobotParams, Weights, home_height
from .state import Motion, Terms

if TYPE_CHECKING:
    Array = np.ndarray
else:
    Array = np.ndarray | np.generic  # NumPy answers with scalars where there are no batch axes


def terms(
    model: RobotModel,
    body: Body,
    motion: Motion,
    command: Float[Array, "*batch 3"],
    effort: Float[Array, "*batch"],
    action: Float[Array, "*batch nu"],
    last_action: Float[Array, "*batch nu"],
    fallen: Bool[Array, "*batch"],
) -> Terms:
    """The terms of the reward before their weights; `effort` is sum tau^2, its mean over the substeps."""
    q, speed = body.qpos[..., np.asarray(model.joint_qpos)], body.qvel[..., np.asarray(model.joint_qvel)]
    low, high = np.asarray(model.joint_range, q.dtype).T
    square = lambda x: x * x
    return Terms(
        velocity=np.exp(-8 * square(motion.forward - command[..., 0])),
        sideways=np.exp(-8 * square(motion.sideways - command[..., 1])),
        turning=np.exp(-4 * square(motion.turning - command[..., 2])),
        upright=np.exp(-4 * (square(motion.pitch) + square(motion.roll))),
        height=np.exp(-200 * square(motion.height - home_height(model))),
        alive=(~fallen).astype(q.dtype),
        torque=effort,
        action_rate=square(action - last_action).sum(-1),
        joint_velocity=square(speed).sum(-1),
        joint_limits=(np.maximum(low - q, 0) + np.maximum(q - high, 0)).sum(-1),
    )


def weighted(terms: Terms, weights: Weights) -> Terms:
    """The terms as the reward counts them."""
    return Terms(*(weight * term for weight, term in zip(astuple(weights), terms, strict=True)))


def has_fallen(
    model: RobotModel, params: RobotParams, body: Body, motion: Motion, terrain: Float[Array, "*batch"]
) -> Bool[Array, "*batch"]:
    """Whether a body is too low over the ground, too far from upright, or too fast."""
    low = motion.height - terrain < params.least_height * home_height(model)
    return low | (-motion.gravity[..., 2] < params.least_upright) | (np.abs(body.qvel) > params.most_velocity).any(-1)
