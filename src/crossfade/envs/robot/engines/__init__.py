"""Two physics, each in NumPy and in JAX: `mujoco_numpy.py | mujoco_jax.py` and `aba_numpy.py | aba_jax.py`."""

from typing import Any, Literal, Protocol, get_args, runtime_checkable

from ....errors import UsageError, nearest
from ....loading import load_attribute
from ..model import Body, RobotModel, Variation

Physics = Literal["mujoco", "aba"]


@runtime_checkable
class Engine(Protocol):
    """Physics of a robot: the face that all four have. Any number of robots at once, `*batch`, also none."""

    @property
    def model(self) -> RobotModel: ...

    def step(self, body: Body, torque: Any, variation: Variation, /) -> Body:
        """The robots one `timestep` later, under torques (*batch, nu) at their actuated joints.

        Numbers are of the dtype of the body. A robot whose numbers are not finite has none that are afterwards.
        """
        ...


def make_engine(model: RobotModel, physics: Physics | str, side: Literal["numpy", "jax"]) -> Engine:
    """The physics of a robot on one side; no other framework is imported."""
    if physics not in get_args(Physics):
        known = get_args(Physics)
        raise UsageError(f"physics: expected one of {', '.join(known)}, got {physics!r}.{nearest(physics, known)}")
    return load_attribute(f"{__name__}.{physics}_{side}:Engine")(model)
