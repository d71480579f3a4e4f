"""Looking things up in MuJoCo's compiled model of a robot, and refusing what is not there."""

from importlib import import_module
from typing import Any

import numpy as np

from ...errors import UsageError, nearest
from .model import Matrix, Vector


def mujoco_module() -> Any:
    try:
        return import_module("mujoco")
    except ModuleNotFoundError as error:
        raise UsageError("robots need MuJoCo: pip install 'crossfade[mujoco]'.") from error


def refuse(wrong: bool | np.bool, message: str) -> None:
    if wrong:
        raise UsageError(message)


def numbered(mj: Any, kind: str, name: str, setting: str) -> int:
    """Number of what has this name."""
    known = [getattr(mj, kind)(i).name for i in range(getattr(mj, {"joint": "njnt", "geom": "ngeom"}[kind]))]
    if name not in known:
        shown = ", ".join(filter(None, known))
        raise UsageError(f"{setting}: expected names of {kind}s, got {name!r}.{nearest(name, known)} Known: {shown}.")
    return known.index(name)


def kind_of(mj: Any, what: str, number: int) -> str:
    """Kind of a joint or a geom, as an MJCF spells it."""
    mujoco = mujoco_module()
    if what == "joint":
        return mujoco.mjtJoint(mj.jnt_type[number]).name.removeprefix("mjJNT_").lower()
    return mujoco.mjtGeom(mj.geom_type[number]).name.removeprefix("mjGEOM_").lower()


def joints_of(mj: Any, body: int) -> range:
    first = int(mj.body_jntadr[body])
    return range(first, first + int(mj.body_jntnum[body]))


def vector(numbers: Any) -> Vector:
    x, y, z = (float(number) for number in numbers)
    return x, y, z


def matrix(numbers: Any) -> Matrix:
    x, y, z = (vector(row) for row in numbers)
    return x, y, z
