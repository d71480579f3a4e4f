"""What a discriminator knows of a robot, in JAX. Twin: watching_numpy.py."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...algos.amp.features_jax import features
from ...algos.amp.skeleton import Skeleton
from ...envs.robot.kinematics_jax import frames
from ...envs.robot.model import RobotModel
from ...envs.robot.params import HEIGHT
from ...envs.robot.state import State
from ...envs.world import BoundWorld
from . import watching_numpy


def watch(world: BoundWorld, state: State) -> Float[Array, "*n f"]:
    """Features Phi of robots. Heights are those above the ground that they walk on."""
    robot: Any = world.world
    model, body, up = robot.model, state.body, HEIGHT[robot.model.base]
    qpos = body.qpos.at[..., up].add(-state.variation.terrain)
    return features(qpos, body.qvel, clearance(model, qpos), skeleton(model))


def clearance(model: RobotModel, qpos: Float[Array, "*n q"]) -> Float[Array, "*n feet"]:
    """How high the lowest sphere of each foot is above a ground at 0."""
    height = frames(model, qpos).feet[..., 2]
    radius = np.array([foot.radius for foot in model.feet], height.dtype)
    lowest = height - jnp.broadcast_to(radius, height.shape)
    links = [foot.link for foot in model.feet]
    own = [[i for i, link in enumerate(links) if link == foot] for foot in dict.fromkeys(links)]
    return jnp.stack([lowest[..., np.array(spheres)].min(-1) for spheres in own], -1)


def skeleton(model: RobotModel) -> Skeleton:
    """The joints of a robot, actuated or not, and the links that have feet."""
    return watching_numpy.skeleton(model)
