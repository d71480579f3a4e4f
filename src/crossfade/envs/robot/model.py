"""A robot as both physics and the environment know it: links, joints, feet, and the states they share. Framework-free.

`mjcf.py` reads one from an MJCF. Conventions are MuJoCo's: lengths in metres, quaternions (w, x, y, z), z upwards; the
linear velocity of a free base in the axes of the world, its angular velocity in those of the base.

**Base.** `free`: qpos begins with x, y, z and a quaternion (7 numbers), qvel with a linear and an angular velocity (6).
`planar`: both begin with x, z and the pitch about y (3). Then follows one number for each joint.

**Links** are the parts that move on their own, parents first: the base, then one for each joint, in the order of qpos.
The frame of a link has its origin at the joint; a joint turns it about `axis`, by the angle in qpos.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

Vector = tuple[float, float, float]
Matrix = tuple[Vector, Vector, Vector]
ZERO: Vector = (0.0, 0.0, 0.0)

BASE_QPOS = {"free": 7, "planar": 3}
"""Numbers of qpos that are the pose of the base."""
BASE_QVEL = {"free": 6, "planar": 3}
"""Numbers of qvel that are its motion."""


class Body(NamedTuple):
    """The states of robots, the same for every physics."""

    qpos: Any  # (*batch, nq)
    qvel: Any  # (*batch, nv)
    warmstart: Any  # (*batch, nv): accelerations of the last step, from which MuJoCo's solver begins; aba passes it on


class Variation(NamedTuple):
    """How robots and their ground differ from the model, (*batch,) each."""

    friction: Any  # coefficient of friction between feet and ground
    mass: Any  # what all masses and inertias are multiplied by
    damping: Any  # what is added to the damping of every joint, N m s
    terrain: Any  # height of the ground, m


class Frames(NamedTuple):
    """Where the parts of robots are, in the axes of the world."""

    com: Any  # (*batch, 3): centre of mass
    feet: Any  # (*batch, feet, 3): centres of the spheres of the feet
    links: Any  # (*batch, links, 3): origins of the links, the base first


class Base(NamedTuple):
    """Pose and motion of the base, alike for free and planar ones."""

    position: Any  # (*batch, 3)
    quaternion: Any  # (*batch, 4)
    velocity: Any  # (*batch, 3), in the axes of the world
    angular: Any  # (*batch, 3), in the axes of the base


@dataclass(frozen=True)
class Link:
    """A rigid part and the joint that holds it; the base has no joint, and zeros for its numbers."""

    name: str
    parent: int
    """Number of the link that it hangs from; -1 for the base."""
    position: Vector
    """Where the joint is, in the frame of the parent."""
    rotation: Matrix
    """From this frame to the parent's, at angle 0."""
    axis: Vector
    """What the joint turns about."""
    mass: float
    com: Vector
    """Centre of mass, in this frame."""
    inertia: Matrix
    """About the centre of mass, in the axes of this frame."""
    damping: float = 0.0
    armature: float = 0.0
    lower: float = 0.0
    upper: float = 0.0


@dataclass(frozen=True)
class Foot:
    """A sphere that touches the ground."""

    name: str
    link: int
    position: Vector
    """Its centre, in the frame of the link."""
    radius: float


@dataclass(frozen=True)
class RobotModel:
    """A robot. Hashable: JAX compiles programs for it."""

    name: str
    base: Literal["free", "planar"]
    offset: Vector
    """Position of the base where qpos says 0: zeros for a free one."""
    links: tuple[Link, ...]
    feet: tuple[Foot, ...]
    joints: tuple[str, ...]
    """Names of the actuated joints, in the order of torques and actions."""
    actuated: tuple[int, ...]
    """Of each actuated joint its place among all joints: link number - 1."""
    torque_limit: tuple[float, ...]
    """Of each actuated joint, N m; infinite where the MJCF has none."""
    home: tuple[float, ...]
    """qpos in which it stands."""
    timestep: float
    gravity: float
    friction: float
    """Coefficient between feet and ground, as the MJCF has it."""
    others: tuple[str, ...] = ()
    """What else can collide, beside feet with the ground: only `physics=mujoco` knows of it."""
    compiled: bytes = field(default=b"", repr=False)
    """MuJoCo's own compiled model."""

    def __str__(self) -> str:
        return f"{self.name}: {self.nu} actuators, {len(self.feet)} feet, {self.mass:.2f} kg, {self.base} base"

    @property
    def nq(self) -> int:
        return BASE_QPOS[self.base] + len(self.links) - 1

    @property
    def nv(self) -> int:
        return BASE_QVEL[self.base] + len(self.links) - 1

    @property
    def nu(self) -> int:
        return len(self.joints)

    @cached_property
    def mass(self) -> float:
        """Of all links, kg."""
        return sum(link.mass for link in self.links)

    @property
    def up(self) -> int:
        """Place in qpos of the height of the base."""
        return 2 if self.base == "free" else 1

    @property
    def joint_qpos(self) -> tuple[int, ...]:
        """Of each actuated joint its place in qpos."""
        return tuple(BASE_QPOS[self.base] + joint for joint in self.actuated)

    @property
    def joint_qvel(self) -> tuple[int, ...]:
        """Of each actuated joint its place in qvel."""
        return tuple(BASE_QVEL[self.base] + joint for joint in self.actuated)

    @property
    def joint_home(self) -> tuple[float, ...]:
        """Of each actuated joint its angle at home."""
        return tuple(self.home[place] for place in self.joint_qpos)

    @property
    def joint_range(self) -> tuple[tuple[float, float], ...]:
        """Of each actuated joint its least and its greatest angle."""
        return tuple((self.links[joint + 1].lower, self.links[joint + 1].upper) for joint in self.actuated)
