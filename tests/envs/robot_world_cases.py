"""Robots in states of every kind, and worlds in which all that can be random is."""

from dataclasses import replace

import numpy as np

from crossfade.envs.robot.detectors import RANDOM
from crossfade.envs.robot.model import BASE_QVEL, Body, RobotModel, Variation
from crossfade.envs.robot.params import HEIGHT, RobotParams, home_height
from crossfade.envs.robot.robot_numpy import Robot

MODELS = ("stilt6", "sprig11", "tuft8")


def randomised(model: str = "stilt6", **changes) -> RobotParams:
    """Commands, randomisation, noise: nothing is the same in two episodes."""
    spans = {"forward": (0.2, 0.6), "sideways": (-0.2, 0.2), "turning": (-0.5, 0.5)}
    return replace(RobotParams(model=model, randomisation=RANDOM, see_command=True, **spans), **changes)


def bodies(model: RobotModel, n: int, seed: int = 0) -> Body:
    """Standing, leaning, lying, flying, some far too fast: float64."""
    rng = np.random.default_rng(seed)
    qpos = np.tile(np.array(model.home), (n, 1)) + rng.normal(size=(n, model.nq)) * 0.3
    qpos[:, HEIGHT[model.base]] = model.home[HEIGHT[model.base]] * rng.uniform(0.3, 1.4, n)
    lean = rng.choice([0.05, 0.5, 3.0], (n, 1))
    if model.base == "free":
        turned = np.array([1.0, 0, 0, 0]) + lean * rng.normal(size=(n, 4))
        qpos[:, 3:7] = turned / np.linalg.norm(turned, axis=1, keepdims=True)
    else:
        qpos[:, 2:3] = lean * rng.normal(size=(n, 1))
    qvel = rng.normal(size=(n, model.nv)) * rng.choice([0.1, 2.0, 25.0], (n, 1), p=[0.5, 0.45, 0.05])
    assert home_height(model) > 0 and model.nv == BASE_QVEL[model.base] + len(model.links) - 1
    return Body(qpos, qvel, np.zeros_like(qvel))


def variations(model: RobotModel, n: int, seed: int = 0) -> Variation:
    rng = np.random.default_rng(seed)
    return Variation(
        model.friction * rng.uniform(0.5, 1.5, n),
        rng.uniform(0.8, 1.2, n),
        rng.uniform(0, 0.3, n),
        rng.uniform(-0.02, 0.02, n),
    )


def states(world: Robot, n: int, seed: int = 0):
    """States of a world at any moment of an episode: float64."""
    rng = np.random.default_rng(seed)
    settings = world.params.settings("float64")
    begun = world.begin(None, settings, rng.random((n, world.start_numbers), np.float32))
    t = rng.integers(0, world.params.limit + 2, n).astype(np.int32)
    ring = rng.uniform(-1, 1, begun.ring.shape)
    return begun._replace(body=bodies(world.model, n, seed), ring=ring, t=t)
