"""What a discriminator knows of a robot, in NumPy. Twin: watching_jax.py."""

from typing import Any

import numpy as np
from jaxtyping import Float

from ...algos.amp.features_numpy import features
from ...algos.amp.skeleton import Skeleton
from ...envs.robot.kinematics_numpy import frames
from ...envs.robot.model import RobotModel
from ...envs.robot.params import HEIGHT
from ...envs.robot.state import State
from ...envs.world import BoundWorld


def watch(world: BoundWorld, state: State) -> Float[np.ndarray, "*n f"]:
    """Features Phi of robots. Heights are those above the ground that they walk on."""
    robot: Any = world.world
    model, body, up = robot.model, state.body, HEIGHT[robot.model.base]
    qpos = body.qpos.copy()
    qpos[..., up] -= state.variation.terrain
    return features(qpos, body.qvel, clearance(model, qpos), skeleton(model))


def clearance(model: RobotModel, qpos: Float[np.ndarray, "*n q"]) -> Float[np.ndarray, "*n feet"]:
    """How high the lowest sphere of each foot is above a ground at 0."""
    radius = np.array([foot.radius for foot in model.feet], qpos.dtype)
    lowest = frames(model, qpos).feet[..., 2] - radius
    links = [foot.link for foot in model.feet]
    own = [[i for i, link in enumerate(links) if link == foot] for foot in dict.fromkeys(links)]
    return np.stack([lowest[..., spheres].min(-1) for spheres in own], -1)


def skeleton(model: RobotModel) -> Skeleton:
    """The joints of a robot, actuated or not, and the links that have feet."""
    named = dict(zip(model.actuated, model.joints, strict=True))
    joints = tuple(named.get(i, link.name) for i, link in enumerate(model.links[1:]))
    feet = tuple(model.links[link].name for link in dict.fromkeys(foot.link for foot in model.feet))
    return Skeleton(joints, feet, model.base)
