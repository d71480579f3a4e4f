"""What a motion is made of: the order of its positions and of its features. Framework-free, and no physics.

Positions follow MuJoCo: a free base has x, y, z and a unit quaternion (w, x, y, z), and velocities that are linear in
the world and angular in the base's own frame; a planar base has x, z and pitch. The joints come after it.
"""

from dataclasses import dataclass
from typing import Literal

from ...errors import UsageError

POSITION, TURNING = 0.1, 0.5
"""Floors of angles, rad, and of their velocities, rad/s."""
HEIGHT, VELOCITY = 0.02, 0.1
"""Floors of the root's height, m, and velocity, m/s."""
CONTACT = 0.25
"""Floor of contacts, which are from 0 to 1."""


@dataclass(frozen=True)
class Skeleton:
    """The base, and the names of joints and feet in their order."""

    joints: tuple[str, ...]
    feet: tuple[str, ...]
    base: Literal["free", "planar"] = "free"

    def __post_init__(self):
        if not self.joints:
            raise UsageError("joints: expected the names of the joints of a skeleton, got none.")

    @property
    def nq(self) -> int:
        """Numbers in a position."""
        return (7 if self.base == "free" else 3) + len(self.joints)

    @property
    def nv(self) -> int:
        """Numbers in a velocity."""
        return (6 if self.base == "free" else 3) + len(self.joints)

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of every number of a position."""
        return (
            *(("x", "y", "z", "qw", "qx", "qy", "qz") if self.base == "free" else ("x", "z", "pitch")),
            *self.joints,
        )

    @property
    def features(self) -> tuple[str, ...]:
        """The name of every feature Phi of a state."""
        linear, angular = (("x", "y", "z"),) * 2 if self.base == "free" else (("x", "z"), ("y",))
        return (
            *(f"position of {joint}" for joint in self.joints),
            *(f"velocity of {joint}" for joint in self.joints),
            *(f"root velocity {axis}" for axis in linear),
            *(f"root turning about {axis}" for axis in angular),
            "root height",
            *(f"contact of {foot}" for foot in self.feet),
        )

    @property
    def floors(self) -> tuple[float, ...]:
        """Of every feature the least deviation by which it is divided, in its own units: a robot is not as still as a
        reference that holds a feature still."""
        linear, angular = (3, 3) if self.base == "free" else (2, 1)
        joints, feet = len(self.joints), len(self.feet)
        return (
            *[POSITION] * joints,
            *[TURNING] * joints,
            *[VELOCITY] * linear,
            *[TURNING] * angular,
            HEIGHT,
            *[CONTACT] * feet,
        )
