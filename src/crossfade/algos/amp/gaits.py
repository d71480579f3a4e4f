"""Reference gaits of our own: a pattern generator for the feet, and inverse kinematics for the legs. Framework-free.

Nothing but lengths of legs goes in, so that a style can be learned for any robot without a recording of anyone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from ...errors import UsageError
from ...ranges import Finite, NotNegative, Positive, check
from .clips import Clip, Heights, make_clip
from .skeleton import Skeleton


@dataclass(frozen=True)
class Leg:
    """Two segments below a hip, in the plane of walking; joints by their number in the skeleton.

    All joints turn about y. At angles 0 the leg hangs straight down; a negative hip angle brings the thigh forward, a
    positive knee angle the shank backward, and an ankle angle of -(hip + knee) keeps the foot level.
    """

    hip: int
    knee: int
    ankle: int | None
    thigh: float
    shank: float
    phase: float = 0.0
    """Share of a cycle by which it is ahead."""
    bend: float = 1.0
    """The sign of its knee's angle: 1 as people's knees bend, -1 the other way."""


@dataclass(frozen=True)
class Gait:
    """How feet move: in stance backwards on the ground at the speed of walking, in swing forwards in an arc."""

    speed: Finite = 0.4
    """Metres per second."""
    frequency: Positive = 1.5
    """Cycles of a leg per second."""
    lift: Positive = 0.04
    """Metres that a foot is lifted in the middle of its swing."""
    stance: Positive = 0.55
    """Share of a cycle in which a foot is on the ground."""
    sway: NotNegative = 0.0
    """Metres that the root rises and sinks, twice in a cycle."""

    def __post_init__(self):
        check(self)
        if not self.stance < 1:
            raise UsageError(f"stance: expected a share of a cycle below 1, got {self.stance}.")


def foot_path(gait: Gait, phase: Float[np.ndarray, "*n"]) -> tuple[Float[np.ndarray, "*n"], Float[np.ndarray, "*n"]]:
    """Where a foot is at a phase in [0, 1): metres ahead of its hip, and above the ground.

    In stance, at share s of it, x = L (1/2 - s) and z = 0, with the length L = speed stance / frequency of a step on
    the ground. In swing, at share s of it, x = L (b(s) - 1/2) and z = lift sin^2(pi s). b rises from 0 to 1 by a cubic
    whose slope at both ends is that of the stance, so that the foot neither jumps nor changes its velocity at once.
    """
    phase = phase % 1.0
    length = gait.speed * gait.stance / gait.frequency
    on_ground = phase < gait.stance
    s = np.where(on_ground, phase / gait.stance, (phase - gait.stance) / (1 - gait.stance))
    slope = -(1 - gait.stance) / gait.stance  # of b in shares of the swing, where the foot goes on backwards
    cubic = slope * s + (3 - 3 * slope) * s**2 + (2 * slope - 2) * s**3
    x = length * np.where(on_ground, 0.5 - s, cubic - 0.5)
    return x, np.where(on_ground, 0.0, gait.lift * np.sin(np.pi * s) ** 2)


def leg_angles(
    leg: Leg, x: Float[np.ndarray, "*n"], z: Float[np.ndarray, "*n"]
) -> tuple[Float[np.ndarray, "*n"], Float[np.ndarray, "*n"], Float[np.ndarray, "*n"]]:
    """Hip, knee and ankle that bring the ankle to (x, z) from the hip, z being negative below it.

    With r^2 = x^2 + z^2: cos(knee) = (r^2 - a^2 - b^2) / (2 a b) for the lengths a and b, the knee has the sign `bend`,
    and hip = atan2(-x, -z) - atan2(b sin(knee), a + b cos(knee)). UsageError where the leg is too short.
    """
    a, b = leg.thigh, leg.shank
    distance = np.sqrt(x * x + z * z)
    if (distance > a + b).any() or (distance < abs(a - b)).any():
        raise UsageError(
            f"gait: expected feet between {abs(a - b):.3f} and {a + b:.3f} m from the hip, got "
            f"{distance.min():.3f} to {distance.max():.3f} m. Take a smaller speed or lift, a higher frequency, or "
            "another height."
        )
    knee = leg.bend * np.arccos((distance**2 - a * a - b * b) / (2 * a * b))
    hip = np.arctan2(-x, -z) - np.arctan2(b * np.sin(knee), a + b * np.cos(knee))
    return hip, knee, -(hip + knee)


def generate(
    gait: Gait,
    legs: Sequence[Leg],
    home: Float[np.ndarray, " q"],
    hip_height: float,
    skeleton: Skeleton,
    heights: Heights,
    fps: float,
    cycles: int = 8,
) -> Clip:
    """Walking straight ahead for some cycles; joints of no leg stay as they are at `home`.

    `hip_height` is how high hips are above the ankles when feet are on the ground.
    """
    n = max(3, round(cycles * fps / gait.frequency))
    time = np.arange(n) / fps
    qpos = np.tile(np.asarray(home, np.float64), (n, 1))
    base, up = len(home) - len(skeleton.joints), 2 if skeleton.base == "free" else 1
    rise = gait.sway * np.cos(4 * np.pi * gait.frequency * time)
    qpos[:, 0] += gait.speed * time
    qpos[:, up] += rise
    for leg in legs:
        x, z = foot_path(gait, gait.frequency * time + leg.phase)
        angles = leg_angles(leg, x, z - hip_height - rise)
        for joint, angle in zip((leg.hip, leg.knee, leg.ankle), angles, strict=True):
            if joint is not None:
                qpos[:, base + joint] = angle
    return make_clip(qpos, fps, skeleton, heights, fps)
