"""What a robot's world must do to be one: detectors, for tests and for `crossfade doctor`.

Published ports of such worlds were found in which torques moved nothing, reward terms never varied, settings were never
read, and a fall was noticed in Python but not when compiled. Each is looked for here, by playing.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from .model import RobotModel
from .params import Randomisation, RobotParams, Settings, Weights
from .robot_numpy import Robot
from .state import State, Terms

ROBOTS, STEPS = 8, 8
RANDOM = Randomisation(
    friction=(0.4, 1.2),
    mass=(0.8, 1.2),
    strength=(0.8, 1.2),
    damping=(0.0, 0.3),
    terrain=(-0.02, 0.02),
    latency=(0, 2),
    push=(0.1, 0.5),
    push_every=(3, 7),
    noise=0.02,
)
"""Everything that can differ does."""
Played = list[tuple[State, Any]]


def check(params: RobotParams) -> list[str]:
    """Every promise that a world with these params breaks."""
    world = Robot(params)
    return [*inert_actuators(world), *constant_terms(world), *unread_settings(params), *unheard_falls(params)]


def play(world: Any, actions: Float[np.ndarray, "steps robots nu"] | None = None, settings: Any = None) -> Played:
    """States and outcomes of robots under actions, by default random ones, each joint its own."""
    rng, settings = np.random.default_rng(0), settings or world.params.settings()
    uniform = rng.random((ROBOTS, world.start_numbers), np.float32)
    if actions is None:
        actions = rng.uniform(-1, 1, (STEPS, ROBOTS, world.model.nu)).astype(np.float32)
    state, found = world.begin(None, settings, uniform), []
    for action in actions:
        state, outcome = world.step(None, settings, state, action)
        found.append((state, outcome))
    return found


def inert_actuators(world: Any) -> Iterator[str]:
    """Every actuator moves its own joint: one control step with its action at 1 and at -1, all others at 0."""
    nu, settings = world.model.nu, world.params.settings()
    uniform = np.full((2 * nu, world.start_numbers), 0.5, np.float32)
    action = np.concatenate([np.eye(nu, dtype=np.float32), -np.eye(nu, dtype=np.float32)])
    state = world.begin(None, settings, uniform)
    for _ in range(world.params.randomisation.latency[1] + 1):
        state, _ = world.step(None, settings, state, action)
    up, down = np.split(np.asarray(state.body.qvel), 2)
    for i, (joint, place) in enumerate(zip(world.model.joints, world.model.joint_qvel, strict=True)):
        if not abs(up[i, place] - down[i, place]) > 1e-4:
            yield f"every actuator moves its joint: not so, {joint} does not"


def constant_terms(world: Any) -> Iterator[str]:
    """Every term of the reward that has a weight varies under random actions, and is finite."""
    told = [outcome.told for _, outcome in play(world)]
    names = [f"reward_{name}" for name in Terms._fields if getattr(world.params.weights, name)]
    for name in names:
        values = np.stack([np.asarray(getattr(one, name)) for one in told])
        if not np.isfinite(values).all():
            yield f"every term of the reward is finite: not so, {name} is not"
        elif np.ptp(values) == 0 and name not in ("reward_alive", "reward_joint_limits"):
            yield f"every term of the reward varies: not so, {name} is always {values.flat[0]:g}"


def unread_settings(params: RobotParams) -> Iterator[str]:
    """Every number of the params changes something: play with it moved must differ in some state or outcome."""
    base = _played(_everything(params))
    for name, moved in _moved(_everything(params)):
        if _same(base, _played(moved)):
            yield f"every setting is read: not so, {name} changes nothing"


def unheard_falls(params: RobotParams) -> Iterator[str]:
    """A robot that lies on its face, is too fast or is not finite has ended its episode, in NumPy and compiled."""
    import jax

    from .robot_jax import Robot as CompiledRobot

    host, compiled = Robot(params), CompiledRobot(params)
    settings = params.settings()
    uniform = np.full((1, host.start_numbers), 0.5, np.float32)
    start = host.begin(None, settings, uniform)
    action = np.zeros((1, host.model.nu), np.float32)
    step = jax.jit(lambda settings, state, action: compiled.step(None, settings, state, action))
    for name, body in _ends(host.model, start.body):
        state = start._replace(body=body)
        eager = bool(np.all(host.step(None, settings, state, action)[1].terminated))
        jitted = bool(np.all(step(Settings(*settings), state, action)[1].terminated))
        if not (eager and jitted):
            yield f"a robot that {name} has ended its episode: not so, NumPy says {eager}, compiled JAX {jitted}"


def _ends(model: RobotModel, body: Any) -> Iterator[tuple[str, Any]]:
    """Bodies in which an episode is over."""
    fallen, fast, broken = body.qpos.copy(), body.qvel.copy(), body.qvel.copy()
    if model.base == "free":
        fallen[..., 3:7] = (np.sqrt(0.5), 0, np.sqrt(0.5), 0)
    else:
        fallen[..., 2] = np.pi / 2
    fast[..., model.joint_qvel[0]] = 1000
    broken[..., 0] = np.nan
    yield "lies on its face", body._replace(qpos=fallen)
    yield "is too fast", body._replace(qvel=fast)
    yield "is not finite", body._replace(qvel=broken)


def _everything(params: RobotParams) -> RobotParams:
    """With all that can be random, every weight in play, and joints that begin beyond their limits."""
    weights = Weights(**{own.name: getattr(params.weights, own.name) or 0.1 for own in fields(Weights)})
    spans = {"forward": (0.2, 0.6), "sideways": (-0.1, 0.1), "turning": (-0.2, 0.2)}
    task = {"see_command": True, "limit": STEPS // 2, "spread": 0.9, "substeps": 1, **spans}
    return replace(params, randomisation=RANDOM, weights=weights, **task)


def _moved(params: RobotParams) -> Iterator[tuple[str, RobotParams]]:
    """The params with one setting moved, by its name; those that name things or say how to compute are left out."""
    kept = ("model", "physics", "callback", "joints", "feet", "home", "chunk")
    away = {"least_height": 0.999, "least_upright": 0.9999, "most_velocity": 0.5, "limit": 3, "substeps": 2}
    for own in fields(params):
        value = getattr(params, own.name)
        if own.name in kept:
            continue
        if is_dataclass(value) and not isinstance(value, type):
            for part in fields(value):
                inner = replace(value, **{part.name: _other(getattr(value, part.name))})
                yield f"{own.name}.{part.name}", replace(params, **{own.name: inner})
        else:
            yield own.name, replace(params, **{own.name: away.get(own.name, _other(value))})


def _other(value: Any) -> Any:
    if isinstance(value, tuple):
        return (value[0], value[1] + (2 if isinstance(value[1], int) else 0.3))
    return not value if isinstance(value, bool) else 0.7 * value + 0.01


def _played(params: RobotParams) -> list[np.ndarray]:
    return [leaf for one in play(Robot(params)) for leaf in _leaves(one)]


def _leaves(tree: Any) -> list[np.ndarray]:
    return [leaf for part in tree for leaf in _leaves(part)] if isinstance(tree, tuple) else [np.asarray(tree)]


def _same(one: list[np.ndarray], other: list[np.ndarray]) -> bool:
    alike = lambda a, b: a.shape == b.shape and np.array_equal(a, b, equal_nan=True)
    return all(alike(a, b) for a, b in zip(one, other, strict=True))
