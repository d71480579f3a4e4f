"""Our own physics, in JAX: the articulated-body algorithm. Twin: aba_numpy.py.

What makes it fast in large batches is that everything has a fixed cost: no solver iterates.

**Dynamics.** Spatial vectors in the axes of the world about the origin of the base, which keeps float32 accurate far
from 0. One pass from the base outwards finds velocities, one inwards articulated inertias, one outwards accelerations;
then semi-implicit Euler: v += h a, q += h v. Joint damping is implicit: a joint with armature r and damping d resists
as r + h d. In the air that is MuJoCo's own step with `eulerdamp`.

**Ground.** A sphere at depth d > 0 is pushed up by N = k d - (b + h k) v_z, if that is above 0, and held back by
mu N v_t / sqrt(|v_t|^2 + SLIP^2). Both are linearly implicit: what the acceleration of the step will change, by
diag(mu N / |v_t|, mu N / |v_t|, b + h k) times h a, is added to the inertia of the link.

**Limits.** A joint that is an angle e outside its range is turned back by k e - (b + h k) qvel, implicitly likewise.

All k and b are per weight of the robot, so that small and large ones stand alike. They were chosen by hand to be near
MuJoCo's contacts, among a few dozen, and are not an optimum: neighbours do as well. After 1.2 s of joints that swing by
up to 0.35 rad, on motions that had no part in the choice, the base is 6 to 29 mm from where MuJoCo has it along x.
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ....errors import UsageError
from ..chains import Group, Masses, Soles, groups, masses, soles
from ..chunks_jax import in_chunks, kept
from ..kinematics_jax import base
from ..model import BASE_QPOS, BASE_QVEL, Body, RobotModel, Variation
from ..spatial_jax import (
    apply,
    blocks,
    cross,
    dot,
    force_cross,
    matmul,
    motion_cross,
    rotation_of,
    skew,
    solve,
    spatial_inertia,
    total,
    transpose,
    turned,
)

GROUND_STIFFNESS = 800.0
"""k of the ground per weight, 1/m: a sphere that carries the whole robot sinks by 1/800 m."""
GROUND_DAMPING = 3.0
"""b of the ground per weight, s/m."""
SLIP = 0.02
"""Speed in m/s at which friction has 0.7 of its full strength."""
LIMIT_STIFFNESS = 3.0
"""k of joint limits per weight, m."""
LIMIT_DAMPING = 0.02
"""b of joint limits per weight, m s."""

Motion = tuple[Array, ...]
"""Rotation (3, 3, ...) of a link, its origin (3, ...) as seen from the base, and its velocity (6, ...)."""
Inertia = tuple[Array, ...]
"""Articulated inertia I (6, 6, ...) and bias force f (6, ...) of a link: force = I acceleration + f."""


@dataclass(frozen=True)
class Engine:
    """`physics=aba`, see the module. The warm start is passed on."""

    model: RobotModel

    def __post_init__(self) -> None:
        if self.model.others:
            raise UsageError(
                f"physics=aba: expected feet alone to collide, with the ground; got also {self.model.others[0]}. "
                'Use physics=mujoco, or set contype="0" conaffinity="0" there.'
            )

    def step(self, body: Body, torque: Float[Array, "*batch nu"], variation: Variation) -> Body:
        """The robots one `timestep` later."""
        batch = body.qpos.ndim - 1
        robots = jax.tree.map(
            lambda part: part.reshape(-1, *part.shape[batch:]), (body.qpos, body.qvel, torque, variation)
        )
        qpos, qvel = in_chunks(functools.partial(_step, self.model), *robots)
        return Body(qpos.reshape(body.qpos.shape), qvel.reshape(body.qvel.shape), body.warmstart)


def _step(
    model: RobotModel,
    qpos: Float[Array, "robots nq"],
    qvel: Float[Array, "robots nv"],
    torque: Float[Array, "robots nu"],
    variation: Variation,
) -> tuple[Float[Array, "robots nq"], Float[Array, "robots nv"]]:
    at = base(model, qpos, qvel)
    qpos, qvel, torque, time, dtype = qpos.T, qvel.T, torque.T, model.timestep, str(qpos.dtype)
    rotation = kept(rotation_of(at.quaternion.T))
    velocity = kept(jnp.concatenate([apply(rotation, at.angular.T), at.velocity.T]))
    ends: dict[int, Motion] = {0: (rotation, jnp.zeros_like(velocity[:3]), velocity)}
    angle, rate = qpos[BASE_QPOS[model.base] :], qvel[BASE_QVEL[model.base] :]
    chains = groups(model, dtype)
    moved, outward = [], []
    for group in chains:
        start = _side_by_side([ends[parent] for parent in group.parents])
        motions, found = _outward(group, angle[group.joints], rate[group.joints], start)
        moved.append(motions)
        outward.append(found)
        ends |= {link: tuple(part[..., -1, lane, :] for part in motions) for lane, link in enumerate(group.ends)}
    (heavy, heavy_force), *own = _inertias(masses(model, dtype), ends[0], moved, variation.mass)

    feet = soles(model, dtype)
    ground = _ground(model, feet, _side_by_side([ends[link] for link in feet.links]), at.position[:, 2], variation)
    load: dict[int, Inertia] = {link: _lane(ground, lane) for lane, link in enumerate(feet.links)}
    driving = _driving(model, torque)
    inward = []
    for group, found, weight in zip(reversed(chains), reversed(outward), reversed(own), strict=True):
        zero = jnp.zeros_like(heavy), jnp.zeros_like(velocity)
        start = _side_by_side([load.get(link, zero) for link in group.ends])
        joint = _resistance(model, group, angle, rate, driving, variation.damping)
        end, solved = _inward((*found, *weight), joint, start)
        inward.append(solved)
        for lane, parent in enumerate(group.parents):
            load[parent] = _add(load.get(parent), _lane(end, lane))

    inertia, bias = _add(load.get(0), (heavy, heavy_force))
    if model.base == "free":
        acceleration = solve(inertia, -bias)
    else:
        free = np.array([1, 3, 5])
        acceleration = jnp.zeros_like(bias).at[free].set(solve(inertia[free][:, free], -bias[free]))
    accelerations, joints = {0: acceleration}, jnp.zeros_like(rate)
    for group, found, solved in zip(chains, outward, reversed(inward), strict=True):
        start = jnp.stack([accelerations[parent] for parent in group.parents], -2)
        end, found_joints = _accelerate(found, solved, start)
        joints = joints.at[group.joints].set(found_joints)
        accelerations |= {link: end[:, lane] for lane, link in enumerate(group.ends)}

    linear = acceleration[3:] + cross(velocity[:3], velocity[3:])
    linear = linear.at[2].add(-model.gravity)
    angular = apply(transpose(rotation), acceleration[:3])
    moving = (
        jnp.concatenate([linear, angular]) if model.base == "free" else jnp.stack([linear[0], linear[2], angular[1]])
    )
    qvel = qvel + time * jnp.concatenate([moving, joints])
    return _moved(model, qpos, qvel).T, qvel.T


def _moved(
    model: RobotModel, qpos: Float[Array, "nq lanes"], qvel: Float[Array, "nv lanes"]
) -> Float[Array, "nq lanes"]:
    """qpos after a step with these velocities."""
    time = model.timestep
    if model.base == "planar":
        return qpos + time * qvel
    attitude = turned(qpos[3:7], qvel[3:6], time)
    return jnp.concatenate([qpos[:3] + time * qvel[:3], attitude, qpos[7:] + time * qvel[6:]])


def _side_by_side(lanes: list[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Quantities of several links with an axis for the links before the last."""
    return kept(tuple(jnp.stack(parts, -2) for parts in zip(*lanes, strict=True)))


def _lane(parts: tuple[Array, ...], lane: int) -> tuple[Array, ...]:
    return tuple(part[..., lane, :] for part in parts)


def _add(one: Inertia | None, other: Inertia) -> Inertia:
    return other if one is None else kept((one[0] + other[0], one[1] + other[1]))


def _outward(
    group: Group,
    angle: Float[Array, "depth chains lanes"],
    rate: Float[Array, "depth chains lanes"],
    motion: Motion,
) -> tuple[Motion, tuple[Array, ...]]:
    """Motion of the links of chains; of each the axis S and the acceleration c = V x S qvel that is always there."""
    rotation, origin, velocity = motion
    beside = lambda field: np.moveaxis(field, 0, -3)  # the axis of links behind those of vectors and matrices
    sine, rest = kept((jnp.sin(angle), 1 - jnp.cos(angle)))
    turn = kept(beside(group.turn) * sine[None, None] + beside(group.turn2) * rest[None, None])
    rotations, origins = [], []
    for i in range(len(angle)):
        origin = origin + apply(rotation, group.position[i])
        rotation = rotation if group.straight else kept(matmul(rotation, group.rotation[i]))
        rotation, origin = kept((rotation + matmul(rotation, turn[:, :, i]), origin))
        rotations.append(rotation)
        origins.append(origin)
    turned, place = kept((jnp.stack(rotations, -3), jnp.stack(origins, -3)))
    axis = kept(apply(turned, beside(group.axis)))
    along = kept(jnp.concatenate([axis, cross(place, axis)]))
    own = kept(along * rate[None])
    speed = kept(jnp.stack([velocity := velocity + own[:, i] for i in range(len(angle))], -3))
    return (turned, place, speed), kept((along, motion_cross(speed, own)))


def _inertias(constants: Masses, base: Motion, chains: list[Motion], scale: Float[Array, " lanes"]) -> list[Inertia]:
    """Of the base and of the links of each group the inertia I, and the force f = V x* I V that is always there."""
    flat = lambda part: part.reshape(*part.shape[:-3], -1, part.shape[-1])
    beside = [[part[..., None, :] for part in base], *([flat(part) for part in motion] for motion in chains)]
    rotation, origin, velocity = kept(tuple(jnp.concatenate(parts, -2) for parts in zip(*beside, strict=True)))
    centre = kept(origin + apply(rotation, constants.com))
    inertia = spatial_inertia(
        rotation, centre, scale[None] * constants.mass, scale[None, None, None] * constants.inertia
    )
    force = kept(force_cross(velocity, kept(apply(inertia, velocity))))
    found, first = [(inertia[:, :, 0], force[:, 0])], 1
    for _, places, _ in chains:
        shape, last = places.shape[1:], first + places.shape[1] * places.shape[2]
        found.append((inertia[:, :, first:last].reshape(6, 6, *shape), force[:, first:last].reshape(6, *shape)))
        first = last
    return found


def _ground(
    model: RobotModel, feet: Soles, motion: tuple[Array, ...], height: Float[Array, " lanes"], variation: Variation
) -> Inertia:
    """What the ground adds to the inertia and the force of each link with feet."""
    rotation, origin, velocity = motion
    stiffness, damping = _of_weight(model, GROUND_STIFFNESS, GROUND_DAMPING)
    lower = np.stack([np.zeros_like(feet.radius)] * 2 + [feet.radius])
    lever = kept(origin[:, None] + matmul(rotation, feet.position) - lower)
    speed = kept(velocity[3:, None] + cross(jnp.broadcast_to(velocity[:3, None], lever.shape), lever))
    depth = (variation.terrain - height)[None, None] - lever[2]
    push = stiffness * depth - damping * speed[2]
    touching = (depth > 0) & (push > 0) & (feet.weight > 0)
    push, touching = kept((jnp.where(touching, push, 0), touching))
    hold = kept(variation.friction[None, None] * push / jnp.sqrt(speed[0] ** 2 + speed[1] ** 2 + SLIP**2))
    force = kept(jnp.stack([-hold * speed[0], -hold * speed[1], push]))
    give = kept(model.timestep * jnp.stack([hold, hold, jnp.where(touching, damping, 0).astype(push.dtype)]))
    arm = kept(skew(lever))
    moment = kept(arm * give[None])
    angular, moment = kept((total(-matmul(moment, arm), 2), total(moment, 2)))
    linear = jnp.eye(3, dtype=give.dtype)[:, :, None, None] * total(give, 1)[None]
    inertia = kept(blocks(angular, moment, transpose(moment), linear))
    bias = -total(jnp.concatenate([kept(cross(lever, force)), force]), 1) - model.gravity * inertia[:, 5]
    return inertia, kept(bias)


def _of_weight(model: RobotModel, stiffness: float, damping: float) -> tuple[float, float]:
    """k, and b + h k."""
    weight = model.mass * model.gravity
    return weight * stiffness, weight * (damping + model.timestep * stiffness)


def _driving(model: RobotModel, torque: Float[Array, "nu lanes"]) -> Float[Array, "joints lanes"]:
    """Torques at all joints: 0 where there is no actuator."""
    driving = jnp.zeros((len(model.links) - 1, torque.shape[1]), torque.dtype)
    return driving.at[np.array(model.actuated)].set(torque)


def _resistance(
    model: RobotModel,
    group: Group,
    angle: Float[Array, "joints lanes"],
    rate: Float[Array, "joints lanes"],
    driving: Float[Array, "joints lanes"],
    more: Float[Array, " lanes"],
) -> tuple[Float[Array, "depth chains lanes"], Float[Array, "depth chains lanes"]]:
    """Torque at each joint without any acceleration, and what it loses by an acceleration of 1."""
    angle, rate = angle[group.joints], rate[group.joints]
    stiffness, stopping = _of_weight(model, LIMIT_STIFFNESS, LIMIT_DAMPING)
    outside = jnp.clip(angle, group.lower, group.upper) - angle
    stops = jnp.where(outside != 0, stopping, 0).astype(angle.dtype)
    damping = more[None, None] + stops + group.damping
    torque = driving[group.joints] + stiffness * outside - damping * rate
    return kept((torque, model.timestep * damping + group.armature))


def _inward(
    found: tuple[Array, ...], joint: tuple[Array, Array], load: tuple[Array, ...]
) -> tuple[tuple[Array, ...], list[tuple[Array, ...]]]:
    """Articulated inertia where chains hang; and of each joint U = I S, u = torque - S f and 1 / (S I S + r)."""

    inertia, bias = load
    solved = []
    for i in reversed(range(len(joint[0]))):
        along, drift, own, force = (part[..., i, :, :] for part in found)
        inertia, bias = inertia + own, bias + force
        carried = kept(apply(inertia, along))
        inverse, left = kept((1 / (dot(along, carried) + joint[1][i]), joint[0][i] - dot(along, bias)))
        bias = bias + apply(inertia, drift) + carried * ((left - dot(carried, drift)) * inverse)[None]
        inertia, bias = kept((inertia - carried[:, None] * (carried * inverse[None])[None], bias))
        solved.append((carried, left, inverse))
    return (inertia, bias), solved[::-1]


def _accelerate(
    found: tuple[Array, ...], solved: list[tuple[Array, ...]], acceleration: Float[Array, "6 chains lanes"]
) -> tuple[Float[Array, "6 chains lanes"], Float[Array, "depth chains lanes"]]:
    """Accelerations at the ends of chains, and of their joints."""

    joints = []
    for i, (carried, left, inverse) in enumerate(solved):
        along, drift = (part[..., i, :, :] for part in found)
        acceleration = acceleration + drift
        joints.append((left - dot(carried, acceleration)) * inverse)
        acceleration = kept(acceleration + along * joints[-1][None])
    return acceleration, jnp.stack(joints)
