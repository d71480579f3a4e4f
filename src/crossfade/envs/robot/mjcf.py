"""Reads a robot from an MJCF: one of ours by its name, or the user's own file. MuJoCo's compiler does the reading.

What both physics can compute is accepted: one robot on a free base, or on a planar one (slide x, slide z, hinge y),
hinges elsewhere, feet that are spheres, a horizontal plane as ground. Torques are applied to joints directly, so that
of the file's actuators only their joints and limits are read. What is refused is named, with what to do.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UsageError, nearest
from .mjcf_links import foot_of, links_of
from .mjcf_names import joints_of, kind_of, mujoco_module, numbered, refuse, vector
from .model import BASE_QPOS, ZERO, RobotModel

ROBOTS = ("sprig11", "tuft8", "stilt6")
"""Robots of our own: a biped, a quadruped, and a biped that stays in a plane."""
COLLIDING = ("plane", "sphere", "capsule")
"""Kinds of geoms that may collide: those that MJX has cheap and exact contacts for."""
PLANAR = (("slide", (1.0, 0.0, 0.0)), ("slide", (0.0, 0.0, 1.0)), ("hinge", (0.0, 1.0, 0.0)))
"""Kinds and axes of the joints of a planar base, in their order."""
NOT_FINITE = re.compile(r'\w+="[-+.\d\se]*\b(nan|inf)\b[^"]*"', re.IGNORECASE)
"""An attribute of numbers among which one is not finite."""


def load(
    name_or_path: str,
    *,
    joints: tuple[str, ...] | None = None,
    feet: tuple[str, ...] | None = None,
    home: str | tuple[float, ...] | None = None,
) -> RobotModel:
    """The robot of this name, or of the MJCF at this path.

    joints: the actuated joints, in the order of actions; those of the file's actuators unless named.
    feet: geoms that are feet; every sphere that can touch the ground unless named.
    home: the pose in which it stands, a keyframe or qpos itself; the keyframe `home`, or the first, unless given.
    """
    if name_or_path in ROBOTS and joints is None and feet is None and home is None:
        return _ours(name_or_path)
    return _read(name_or_path, joints, feet, home)


@cache
def _ours(name: str) -> RobotModel:
    return _read(name, None, None, None)


def _read(
    name: str, joints: tuple[str, ...] | None, feet: tuple[str, ...] | None, home: str | tuple[float, ...] | None
) -> RobotModel:
    mj = _compile(name)
    floor = _floor(mj)
    base = _base(mj)
    _refuse_what_is_unknown(mj, base)
    links, places = links_of(mj, base)
    spheres = [numbered(mj, "geom", foot, "feet") for foot in feet] if feet is not None else _touching(mj, floor)
    actuated = [numbered(mj, "joint", joint, "joints") for joint in joints] if joints is not None else _driven(mj)
    first = BASE_QPOS[base]
    loose = [mj.joint(joint).name for joint in actuated if mj.jnt_qposadr[joint] < first]
    refuse(bool(loose), f"joints: expected joints between links, got {loose}, which hold the base. Leave them out.")
    for what, given in (("joints", actuated), ("feet", spheres)):
        refuse(not given, f"{what}: expected at least one, found none in {name}. Name them by {what}=.")
        refuse(len(set(given)) < len(given), f"{what}: expected each once, got one twice. Name each once.")
    return RobotModel(
        name=mj.names.split(b"\0", 1)[0].decode() or Path(name).stem,
        base=base,
        offset=ZERO if base == "free" else vector(mj.body_pos[1]),
        links=links,
        feet=tuple(foot_of(mj, sphere, places) for sphere in spheres),
        joints=tuple(mj.joint(joint).name for joint in actuated),
        actuated=tuple(int(mj.jnt_qposadr[joint]) - first for joint in actuated),
        torque_limit=tuple(_limit(mj, joint) for joint in actuated),
        home=_home(mj, base, home),
        timestep=float(mj.opt.timestep),
        gravity=-float(mj.opt.gravity[2]),
        friction=float(np.maximum(mj.geom_friction[spheres, 0], mj.geom_friction[floor, 0]).max()),
        others=_others(mj, floor, spheres),
        compiled=_bytes(mj),
    )


def _compile(name: str) -> Any:
    """MuJoCo's model: no actuators of its own, no sensors, and numbers that are not finite stay so."""
    mujoco, path = mujoco_module(), Path(name)
    if name in ROBOTS:
        path = Path(__file__).parent / "robots" / f"{name}.xml"
    elif not path.is_file():
        known = f"one of {', '.join(ROBOTS)} or the path of an MJCF"
        raise UsageError(f"robot: expected {known}, got {name!r}, which is no file.{nearest(name, ROBOTS)}")
    lost = NOT_FINITE.search(path.read_text(errors="replace"))  # MuJoCo would take the default in its place
    refuse(lost is not None, f"{path}: expected finite numbers, got {lost and lost[0]}. Mend it there.")
    try:
        mj = mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        said = " ".join(str(error).split())[:300]
        raise UsageError(f"{path}: expected an MJCF that MuJoCo can compile, got: {said}. Mend it there.") from error
    off = mujoco.mjtDisableBit
    mj.opt.disableflags |= off.mjDSBL_ACTUATION | off.mjDSBL_AUTORESET | off.mjDSBL_SENSOR
    return mj


def compiled(model: RobotModel) -> Any:
    """MuJoCo's model of a robot, a new one at each call."""
    return mujoco_module().MjModel.from_binary_path("robot.mjb", {"robot.mjb": model.compiled})


def ground_and_feet(mj: Any, model: RobotModel) -> list[int]:
    """Numbers of the geoms that are the ground and the feet, in MuJoCo's model of a robot."""
    return [_floor(mj), *(numbered(mj, "geom", foot.name, "feet") for foot in model.feet)]


def _bytes(mj: Any) -> bytes:
    mujoco = mujoco_module()
    room = np.zeros(mujoco.mj_sizeModel(mj), np.uint8)
    mujoco.mj_saveModel(mj, None, room)
    return room.tobytes()


def _base(mj: Any) -> Any:
    """Which base the first body stands on; every other body must hang from it."""
    refuse(mj.nbody < 2, "robot: expected a body with joints, found none. Put one into worldbody.")
    held = [(kind_of(mj, "joint", j), vector(mj.jnt_axis[j])) for j in joints_of(mj, 1)]
    base = "free" if [kind for kind, _ in held] == ["free"] else "planar" if tuple(held) == PLANAR else None
    if base is None:
        found = ", ".join(f"{kind} {axis}" for kind, axis in held) or "no joints"
        raise UsageError(
            f"{mj.body(1).name}: expected a free joint or slide x, slide z, hinge y, in this order; got {found}. "
            "Give the base a <freejoint/>, or the three joints of a planar one."
        )
    strays = [mj.body(b).name for b in range(2, mj.nbody) if mj.body_rootid[b] != 1]
    refuse(bool(strays), f"robot: expected one robot, got also the bodies {strays}. Remove them from worldbody.")
    if base == "planar":
        turned = bool(np.any(mj.body_quat[1] != (1, 0, 0, 0)) or np.any(mj.jnt_pos[list(joints_of(mj, 1))]))
        refuse(turned, f"{mj.body(1).name}: expected a planar base without quat and joint pos. Remove them.")
    return base


def _refuse_what_is_unknown(mj: Any, base: str) -> None:
    """Whatever would move the robot in MuJoCo and is not in `RobotModel`."""
    mujoco = mujoco_module()
    for body in range(2, mj.nbody):
        kinds = [kind_of(mj, "joint", joint) for joint in joints_of(mj, body)]
        wrong = kinds not in ([], ["hinge"])
        refuse(wrong, f"{mj.body(body).name}: expected one hinge or none, got {kinds}. Give each hinge its own body.")
    each = {
        "frictionloss": mj.dof_frictionloss,
        "stiffness": mj.jnt_stiffness,
        "ref": mj.qpos0[BASE_QPOS[base] :],
        "damping of the base": mj.dof_damping[: BASE_QPOS[base] - (base == "free")],
        "armature of the base": mj.dof_armature[: BASE_QPOS[base] - (base == "free")],
        "gravcomp": mj.body_gravcomp,
        "density": np.array([mj.opt.density]),
        "viscosity": np.array([mj.opt.viscosity]),
        "wind": mj.opt.wind,
        "magnitude of a sideways gravity": mj.opt.gravity[:2],
    }
    for what, numbers in each.items():
        refuse(bool(np.any(numbers)), f"{what}: expected 0, got {float(np.abs(numbers).max()):g}. Set it to 0.")
    for what, count in (("equality constraints", mj.neq), ("tendons", mj.ntendon), ("plugins", mj.nplugin)):
        refuse(count > 0, f"{what}: expected none, got {count}. Remove them.")
    euler = mj.opt.integrator == mujoco.mjtIntegrator.mjINT_EULER
    refuse(not euler, 'integrator: expected Euler, got another. Write <option integrator="Euler"/>.')


def _floor(mj: Any) -> int:
    """Number of the geom that is the ground."""
    planes = [g for g in range(mj.ngeom) if kind_of(mj, "geom", g) == "plane"]
    level = len(planes) == 1 and mj.geom_bodyid[planes[0]] == 0 and not np.any(mj.geom_pos[planes[0]])
    if not level or np.any(mj.geom_quat[planes[0]] != (1, 0, 0, 0)):
        raise UsageError("ground: expected one plane in worldbody, at z = 0 and level. Put one there.")
    return planes[0]


def _can_touch(mj: Any, one: int, other: int) -> bool:
    """Whether MuJoCo looks for contacts between two geoms."""
    if not (mj.geom_contype[one] & mj.geom_conaffinity[other] or mj.geom_contype[other] & mj.geom_conaffinity[one]):
        return False
    bodies = [int(mj.body_weldid[mj.geom_bodyid[geom]]) for geom in (one, other)]
    if bodies[0] == bodies[1]:
        return False
    above = [int(mj.body_weldid[mj.body_parentid[body]]) for body in bodies]
    return 0 in bodies or not (above[0] == bodies[1] or above[1] == bodies[0])


def _touching(mj: Any, floor: int) -> list[int]:
    """Spheres that can touch the ground."""
    return [g for g in range(mj.ngeom) if kind_of(mj, "geom", g) == "sphere" and _can_touch(mj, floor, g)]


def _others(mj: Any, floor: int, feet: Sequence[int]) -> tuple[str, ...]:
    """Pairs of geoms that can collide, beside the feet with the ground; of kinds that MJX cannot, none may."""
    named = lambda geom: mj.geom(geom).name or f"geom {geom} of {mj.body(mj.geom_bodyid[geom]).name}"
    pairs = [(a, b) for a in range(mj.ngeom) for b in range(a + 1, mj.ngeom) if _can_touch(mj, a, b)]
    for geom in sorted({geom for pair in pairs for geom in pair}):
        kind = kind_of(mj, "geom", geom)
        if kind not in COLLIDING:
            raise UsageError(
                f"{named(geom)}: expected what collides to be a {', a '.join(COLLIDING[:-1])} or a {COLLIDING[-1]}, "
                f'got a {kind}. Put spheres in its place, and set contype="0" conaffinity="0" on it.'
            )
    for foot in feet:
        refuse(not _can_touch(mj, floor, foot), f"{named(foot)}: expected a foot to collide with the ground. Let it.")
    return tuple(
        f"{named(a)} with {named(b)}" for a, b in pairs if not ({a, b} - {floor} <= set(feet) and floor in (a, b))
    )


def _driven(mj: Any) -> list[int]:
    """Joints of the actuators, in their order."""
    mujoco = mujoco_module()
    drives = [i for i in range(mj.nu) if mj.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT]
    return [int(mj.actuator_trnid[i, 0]) for i in drives]


def _limit(mj: Any, joint: int) -> float:
    """The greatest torque at a joint: of itself, of its actuator's force, or of its actuator's control."""
    limits = [np.inf]
    if mj.jnt_actfrclimited[joint]:
        limits.append(np.abs(mj.jnt_actfrcrange[joint]).min())
    for drive in range(mj.nu):
        if mj.actuator_trnid[drive, 0] != joint:
            continue
        gear = abs(mj.actuator_gear[drive, 0])
        if mj.actuator_forcelimited[drive]:
            limits.append(gear * np.abs(mj.actuator_forcerange[drive]).min())
        if mj.actuator_ctrllimited[drive] and not mj.actuator_biastype[drive]:
            limits.append(gear * abs(mj.actuator_gainprm[drive, 0]) * np.abs(mj.actuator_ctrlrange[drive]).min())
    return float(min(limits))


def _home(mj: Any, base: str, home: str | tuple[float, ...] | None) -> tuple[float, ...]:
    keys = [mj.key(i).name for i in range(mj.nkey)]
    if isinstance(home, tuple):
        qpos = np.array(home, np.float64)
        if qpos.shape != (mj.nq,) or not np.isfinite(qpos).all():
            raise UsageError(f"home: expected {mj.nq} finite numbers, got {len(home)} ({home}).")
    elif home is not None and home not in keys:
        raise UsageError(f"home: expected a keyframe of {keys}, got {home!r}.{nearest(home, keys)}")
    elif not keys:
        raise UsageError(
            "home: expected a keyframe, found none. Add <keyframe><key qpos=.../></keyframe> or give qpos."
        )
    else:
        qpos = mj.key_qpos[keys.index(home) if home is not None else keys.index("home") if "home" in keys else 0]
    length = np.linalg.norm(qpos[3:7]) if base == "free" else 1.0
    refuse(abs(length - 1) > 1e-6, f"home: expected a quaternion of length 1, got {length:g}. Divide it by that.")
    return tuple(float(number) for number in qpos)
