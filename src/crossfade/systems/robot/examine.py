"""What `crossfade doctor` finds in a robot: one that ships, a user's MJCF, or params."""

from pathlib import Path

from ...doctor import Examined
from ...envs.robot import detectors
from ...envs.robot.params import RobotParams
from ...errors import UsageError
from ...loading import load_attribute, theirs


def examine(target: str) -> Examined | None:
    """Sizes of a robot and every promise that its world breaks; None for what is neither an MJCF nor RobotParams."""
    params = _params(target)
    if params is None:
        return None
    try:
        model = params.load()
        problems = detectors.check(params)
    except UsageError as error:
        return Examined([str(params)], [str(error)], {"params": str(params)})
    sizes = {"nq": model.nq, "nv": model.nv, "nu": model.nu, "feet": len(model.feet), "mass": model.mass}
    lines = [str(params), f"  {model}", f"  joints: {', '.join(model.joints)}"]
    return Examined(lines, problems, {"params": str(params), "joints": list(model.joints), **sizes})


def _params(target: str) -> RobotParams | None:
    if Path(target).suffix == ".xml":
        return RobotParams(model=target)
    if ":" not in target:
        return None
    found = load_attribute(target)
    if isinstance(found, type) and issubclass(found, RobotParams):
        found = theirs(target.partition(":")[0], f"calling {target}", found)
    return found if isinstance(found, RobotParams) else None
