"""The style of a robot's walk: its skeleton, the gait or the clip that it is to imitate, and how far it is from it."""

from functools import cache
from pathlib import Path

import numpy as np
from jaxtyping import Float

from ...algos.amp.batch import Reference
from ...algos.amp.clips import Clip, load_clip, velocities
from ...algos.amp.config import AMPConfig
from ...algos.amp.features_numpy import features
from ...algos.amp.gaits import Gait, Leg, generate
from ...algos.amp.health import Distance, feature_distances
from ...algos.amp.reference import reference
from ...envs.robot.model import BASE_QPOS, RobotModel
from ...envs.robot.params import HEIGHT, RobotParams
from ...errors import UsageError
from .watching_numpy import clearance, skeleton

STRETCH = 0.98
"""Share of a straight leg that a gait uses at most."""
STRAIGHT = 1e-6
"""Metres and shares of an axis by which a leg may be out of the plane of walking."""


def reference_of(env: RobotParams, style: AMPConfig, dtype: str) -> Reference:
    """What a discriminator is to know of the motion that is imitated."""
    return reference(clip_of(env, style), dtype)


@cache
def clip_of(env: RobotParams, style: AMPConfig) -> Clip:
    """The user's clip, or a gait at the middle of the commanded speeds, in rows of control steps."""
    model = env.load()
    fps, heights = 1 / (env.substeps * model.timestep), lambda qpos: clearance(model, qpos)
    if style.clip is not None:
        return load_clip(Path(style.clip), skeleton(model), heights, fps, style.fps)
    home, found = np.array(model.home), legs(model)
    home[HEIGHT[model.base]] -= heights(home[None]).min()  # feet on the ground, neither above nor in it
    stands = [_hip_height(model, leg) for leg in found]
    gait = gait_of(env, found, max(stands))
    return generate(gait, found, home, max(stands), skeleton(model), heights, fps)


def gait_of(env: RobotParams, legs: tuple[Leg, ...], hip_height: float) -> Gait:
    """Walking as fast as is commanded, with cycles as frequent as `env.frequency` or as the legs need for it."""
    speed, least = sum(env.forward) / 2, Gait()
    longest = min(STRETCH * (leg.thigh + leg.shank) for leg in legs)
    reach = np.sqrt(max(longest**2 - hip_height**2, 1e-4))
    return Gait(speed=speed, frequency=max(env.frequency, abs(speed) * least.stance / (2 * float(reach))))


def legs(model: RobotModel) -> tuple[Leg, ...]:
    """The legs of a robot: two segments that hang straight down, hips and knees that turn about y.

    Opposite legs are half a cycle apart, and of four the diagonal ones go together.
    """
    feet = dict.fromkeys(foot.link for foot in model.feet)
    return tuple(_leg(model, foot) for foot in feet)


def distances(env: RobotParams, style: AMPConfig, episodes: list[Float[np.ndarray, "_ q"]]) -> list[Distance]:
    """How far each feature of these episodes is from the reference, the farthest first."""
    clip, model = clip_of(env, style), env.load()
    seen = lambda qpos: features(qpos, velocities(qpos, clip.fps, clip.skeleton), clearance(model, qpos), clip.skeleton)
    walked = np.concatenate([seen(qpos.astype(np.float64)) for qpos in episodes])
    known = features(clip.qpos, clip.qvel, clip.clearance, clip.skeleton)
    return feature_distances(known, walked, clip.skeleton.features)


def _leg(model: RobotModel, foot: int) -> Leg:
    """The leg above the link of a foot."""
    chain = [foot]
    while model.links[chain[-1]].parent > 0:
        chain.append(model.links[chain[-1]].parent)
    chain.reverse()
    pitching = [link for link in chain if np.allclose(model.links[link].axis, (0, 1, 0), atol=STRAIGHT)]
    if len(pitching) not in (2, 3):
        raise UsageError(
            f"style: expected legs with a hip, a knee and perhaps an ankle that turn about y, got {len(pitching)} such "
            f"joints above {model.links[foot].name} of {model.name}. Give a clip: style.clip=walk.npz."
        )
    hip, knee, *ankle = pitching
    places = [np.array(model.links[link].position) for link in chain]
    between = lambda first, last: sum(places[chain.index(first) + 1 : chain.index(last) + 1], np.zeros(3))
    ends = [np.array(own.position) for own in model.feet if own.link == foot]
    thigh = between(hip, knee)
    shank = between(knee, ankle[0]) if ankle else between(knee, foot) + np.mean(ends, 0)
    for segment in (thigh, shank):
        if np.abs(segment[:2]).max() > STRAIGHT or segment[2] >= 0:
            raise UsageError(
                f"style: expected legs whose segments hang straight down at angles 0, got {segment} above "
                f"{model.links[foot].name} of {model.name}. Give a clip: style.clip=walk.npz."
            )
    x, y, _ = sum(places[: chain.index(hip) + 1], np.zeros(3))
    return Leg(
        hip=hip - 1,
        knee=knee - 1,
        ankle=ankle[0] - 1 if ankle else None,
        thigh=float(-thigh[2]),
        shank=float(-shank[2]),
        phase=0.5 if (y < 0) != (x < -STRAIGHT) else 0.0,
        bend=-1.0 if model.home[BASE_QPOS[model.base] + knee - 1] < 0 else 1.0,
    )


def _hip_height(model: RobotModel, leg: Leg) -> float:
    """Of a hip above its ankle at home."""
    hip, knee = (model.home[BASE_QPOS[model.base] + joint] for joint in (leg.hip, leg.knee))
    return float(leg.thigh * np.cos(hip) + leg.shank * np.cos(hip + knee))
