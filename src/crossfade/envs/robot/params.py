"""A robot that is to walk, as parameters. Framework-free.

The specification, which `robot_numpy.py` and `robot_jax.py` keep:

**Body.** `model` names one of the robots that ship or a user's MJCF; its state is MuJoCo's: positions, velocities
(world linear, body angular) and quaternions wxyz. `physics` says who moves it: `mujoco` (C MuJoCo on the host, MJX in
JAX) or `aba`, an articulated-body engine of our own. A control step is `substeps` steps of the physics.

**Action.** A number in [-1, 1] for each actuated joint. It enters a ring of the last actions, from which the one of
`latency` steps ago is taken; its target is home + `scale` a. In every substep the torque of each joint is

    tau = clip(strength (kp (target - q) - kd q'), -limit, limit).

**Observation**, 3 n + 11 numbers for n joints (44 for the biped of 11): gravity's direction in the frame of the base
(3), joint positions (n), joint velocities (n), the last action (n), sine and cosine of the gait's phase (2), height of
the base, pitch, roll, and the centre of mass relative to the base, in its frame (3). With `see_command` the command
follows (3): forward speed, sideways speed, turning rate. Normal numbers times `noise` are added to all of it. The phase
of step t is 2 pi `frequency` t dt. With R the base's rotation and w, x, y, z its quaternion: gravity is -R^T e_z, roll
= atan2(2 (w x + y z), 1 - 2 (x^2 + y^2)), pitch = asin(2 (w y - z x)). A planar robot only pitches.

**Command.** Forward and sideways speed in m/s and turning rate in rad/s, each drawn from its range as an episode
begins; `settings` hold the ranges, so that a curriculum can move them. Speeds are those of the base in the frame of its
heading.

**Reward.** The sum of these, each times its weight; sums of squares are over joints, v is the velocity after the step.

| term | |
|---|---|
| velocity | exp(-8 (v_forward - command)^2) |
| sideways | exp(-8 (v_sideways - command)^2) |
| turning | exp(-4 (turning rate - command)^2) |
| upright | exp(-4 (pitch^2 + roll^2)) |
| height | exp(-200 (height - that of the home pose)^2) |
| alive | 1 unless the episode ends by a fall |
| torque | sum tau^2, its mean over the substeps |
| action_rate | sum (a - last a)^2 |
| joint_velocity | sum q'^2 |
| joint_limits | sum of how far joints are beyond their ranges |

**End.** An episode is `terminated` where the base is lower over the ground than `least_height` times the height of the
home pose, where gravity's share along the base's own axis is below `least_upright`, where a velocity exceeds
`most_velocity`, or where the physics left the finite numbers (the body then stays as it was). One that has taken
`limit` steps without that is `truncated`.

**Randomness.** `begin` is given uniform numbers. From them come the joints (home +- `spread`), the command, the
`Randomisation` of the episode, and a key of two words, floor(2^23 u). In step t impulses are drawn from fold_in(key, 2
t) and observation noise from fold_in(key, 2 t + 1). Every `push_every` steps (drawn for the episode) the base's
velocity changes by impulse / mass in a random horizontal direction, forwards or backwards for a planar robot. The
ground lies `terrain` above 0 and the robot starts that much higher; the observed height is that above 0.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from ...errors import UsageError
from ...ranges import Count, Finite, Fraction, Natural, NotNegative, Positive, Range, check
from .mjcf import load
from .model import RobotModel

Span = tuple[float, float]
"""Least and largest of what is drawn uniformly; equal where nothing is."""
HEIGHT = {"free": 2, "planar": 1}
"""Place of the base's height in qpos."""


@dataclass(frozen=True)
class Weights:
    """What each term of the reward counts."""

    velocity: Finite = 1.5
    """Of walking at the commanded speed."""
    sideways: Finite = 0.0
    """Of drifting sideways as commanded."""
    turning: Finite = 0.0
    """Of turning as commanded."""
    upright: Finite = 0.3
    """Of an upright base."""
    height: Finite = 0.0
    """Of a base as high as at home."""
    alive: Finite = 0.2
    """Of not falling."""
    torque: Finite = -2e-4
    """Of squared torques."""
    action_rate: Finite = -0.01
    """Of squared changes of the action."""
    joint_velocity: Finite = 0.0
    """Of squared joint velocities."""
    joint_limits: Finite = 0.0
    """Of joints beyond their ranges."""

    def __post_init__(self) -> None:
        check(self, "weights.")


@dataclass(frozen=True)
class Randomisation:
    """What differs between episodes: spans, drawn uniformly as one begins. By default nothing does."""

    friction: Annotated[Span, Range(least=0)] | None = None
    """Friction coefficient of the feet; none takes the model's own."""
    mass: Annotated[Span, Range(above=0)] = (1.0, 1.0)
    """Scale of all masses."""
    strength: Annotated[Span, Range(least=0)] = (1.0, 1.0)
    """Scale of what the motors give."""
    damping: Annotated[Span, Range(least=0)] = (0.0, 0.0)
    """Damping of the joints, added to the model's own."""
    terrain: Annotated[Span, Range(-1, 1)] = (0.0, 0.0)
    """Height of the ground in metres."""
    latency: Annotated[tuple[int, int], Range(0, 50)] = (0, 0)
    """Control steps after which an action is carried out, both bounds included."""
    push: Annotated[Span, Range(least=0)] = (0.0, 0.0)
    """Impulse of a push in N s."""
    push_every: Annotated[tuple[int, int], Range(1, 10**6)] = (100, 200)
    """Control steps from one push to the next, both bounds included."""
    noise: NotNegative = 0.0
    """Standard deviation of what is added to the observation."""

    def __post_init__(self) -> None:
        check(self, "randomisation.")
        for own in fields(self):
            span = getattr(self, own.name)
            if isinstance(span, tuple) and (len(span) != 2 or span[0] > span[1]):
                raise UsageError(f"randomisation.{own.name}: expected the least and the largest, got {span}.")

    @property
    def pushes(self) -> bool:
        """Whether there are any."""
        return self.push[1] > 0


class Settings(NamedTuple):
    """Ranges of the command, (3,) each: forward, sideways, turning. Their precision is that of the whole world."""

    low: Any
    high: Any


@dataclass(frozen=True)
class RobotParams:
    """A robot, its task and what is random in it; the module's docstring is the specification."""

    model: str = "stilt6"
    """sprig11 (a biped of 11 joints), tuft8 (a quadruped), stilt6 (a planar biped), or the path of an MJCF."""
    physics: Literal["aba", "mujoco"] = "aba"
    """Who moves the body: our articulated-body engine, or MuJoCo (MJX in JAX)."""
    callback: bool = False
    """The compiled program steps the host's physics through a callback, instead of one of its own."""
    joints: tuple[str, ...] = ()
    """Actuated joints of a user's MJCF, in the order of the actions; none takes its actuators."""
    feet: tuple[str, ...] = ()
    """Geoms of a user's MJCF that touch the ground; none takes those that can."""
    home: str | None = None
    """Keyframe in which episodes begin; none takes `home`, or the first."""
    substeps: Annotated[int, Range(1, 1000)] = 5
    """Steps of the physics in a control step."""
    kp: NotNegative = 30.0
    """Torque for each radian that a joint is away from its target."""
    kd: NotNegative = 0.6
    """Torque against each rad/s of a joint."""
    scale: Positive = 0.35
    """Radians from the home pose to the target of action 1."""
    frequency: Positive = 1.5
    """Of the gait's phase, in Hz."""
    see_command: bool = False
    """Whether the command is observed."""
    forward: Annotated[Span, Range()] = (0.4, 0.4)
    """Range of the commanded forward speed in m/s."""
    sideways: Annotated[Span, Range()] = (0.0, 0.0)
    """Range of the commanded sideways speed in m/s."""
    turning: Annotated[Span, Range()] = (0.0, 0.0)
    """Range of the commanded turning rate in rad/s."""
    weights: Weights = Weights()
    """What each term of the reward counts: `env.weights.torque=-1e-3`."""
    randomisation: Randomisation = Randomisation()
    """What differs between episodes: `env.randomisation.mass=0.85,1.15`."""
    spread: NotNegative = 0.05
    """Radians by which joints are away from home at most as an episode begins."""
    least_height: Fraction = 0.6
    """Of the height of the home pose: lower is a fall."""
    least_upright: Annotated[float, Range(-1, 1)] = 0.6
    """Share of gravity along the base's own axis: less is a fall."""
    most_velocity: Positive = 50.0
    """Largest velocity of any degree of freedom; more ends the episode."""
    limit: Count = 500
    """Control steps of an episode at most."""
    chunk: Natural = 128
    """Robots that the compiled physics takes at a time, for the caches of a core; 0 takes all at once."""

    numpy: ClassVar[str] = "crossfade.envs.robot.robot_numpy:Robot"
    jax: ClassVar[str] = "crossfade.envs.robot.robot_jax:Robot"

    def __post_init__(self) -> None:
        check(self)
        for name in ("forward", "sideways", "turning"):
            span = getattr(self, name)
            if len(span) != 2 or span[0] > span[1]:
                raise UsageError(f"{name}: expected the least and the largest, got {span}.")

    def __str__(self) -> str:
        low, high = self.forward
        speed = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return f"{self.model}, physics={self.physics}, {speed} m/s"

    def load(self) -> RobotModel:
        """The robot as the physics knows it; UsageError for one that cannot be read."""
        return load(self.model, joints=self.joints or None, feet=self.feet or None, home=self.home)

    def settings(self, dtype: str = "float32") -> Settings:
        """The ranges of the command as a world reads them."""
        return as_settings((self.forward, self.sideways, self.turning), dtype)


def as_settings(spans: tuple[Span, Span, Span], dtype: str) -> Settings:
    """Ranges of the three numbers of a command as arrays."""
    low, high = np.array(spans, dtype).T
    return Settings(np.ascontiguousarray(low), np.ascontiguousarray(high))


def home_height(model: RobotModel) -> float:
    """Of the base over the ground, in the home pose."""
    return model.home[HEIGHT[model.base]] + model.offset[2]
