"""The rules of the robot's world by hand, and the faults that published ports of such worlds had, each looked for."""

import ast
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from robot_world_cases import MODELS, bodies, randomised

import crossfade.envs.robot
from crossfade.envs.robot import detectors, robot_jax, robot_numpy
from crossfade.envs.robot.model import Body
from crossfade.envs.robot.observation_numpy import motion, observation
from crossfade.envs.robot.params import Randomisation, RobotParams, Settings, Weights, home_height
from crossfade.envs.robot.reward_numpy import terms
from crossfade.envs.robot.robot_numpy import Robot
from crossfade.errors import UsageError
from crossfade.random import random_numpy as random
from default_run import few

SPRIG = RobotParams(model="sprig11")


def begun(world, n: int = 4, seed: int = 0, dtype: str = "float64"):
    uniform = random.uniform(random.key(seed), (n, world.start_numbers), "float32")
    return world.begin(None, world.params.settings(dtype), uniform)


def step(world, state, action=None):
    action = np.zeros((*state.t.shape, world.model.nu)) if action is None else action
    return world.step(None, world.params.settings(str(state.ring.dtype)), state, action)


# Torques


def test_torque_reads_the_joints_and_not_the_base():
    """D1: the published PD read qpos[:11], which is the pose of the base and four joints."""
    world = Robot(SPRIG)
    body = bodies(world.model, 3)
    q, speed = body.qpos[:, 7:18], body.qvel[:, 6:17]
    target, strength = q + 0.05, np.array([1.0, 0.5, 2.0])
    expected = np.clip(strength[:, None] * (30 * 0.05 - 0.6 * speed), -4, 4)
    np.testing.assert_allclose(world.torque(body, target, strength), expected, rtol=1e-12)
    moved = body._replace(qpos=np.concatenate([body.qpos[:, :7] + 1, q], 1))
    np.testing.assert_allclose(world.torque(moved, target, strength), expected, rtol=1e-12)


@pytest.mark.parametrize("name", few(MODELS, "stilt6"))
def test_every_actuator_moves_the_state(name):
    """D2: in the published port torques changed nothing."""
    assert list(detectors.inert_actuators(Robot(RobotParams(model=name)))) == []


def test_an_inert_actuator_is_found():
    class Inert(Robot):
        def torque(self, body, target, strength):
            found = super().torque(body, target, strength)
            found[..., 2] = 0
            return found

    (problem,) = detectors.inert_actuators(Inert(RobotParams()))
    assert "l_ankle" in problem


def test_an_action_acts_after_its_latency():
    ranges = Randomisation(latency=(2, 2))
    world = Robot(RobotParams(randomisation=ranges, spread=0.0))
    start, action = begun(world), np.full((4, world.model.nu), 0.5)
    still, acted = [start], [start]
    for t in range(4):
        still.append(step(world, still[-1])[0])
        acted.append(step(world, acted[-1], action if t == 0 else None)[0])
    same = [np.array_equal(a.body.qpos, b.body.qpos) for a, b in zip(still, acted, strict=True)]
    assert same == [True, True, True, False, False]
    np.testing.assert_array_equal(acted[1].observation[:, 15:21], action)  # the last action is seen at once


# Episodes


@pytest.mark.parametrize("name", few(MODELS, "stilt6"))
def test_a_reset_is_alive(name):
    """D3: the published reset gave a zero pose, whose next step was done in Python and not when compiled."""
    world = Robot(replace(randomised(name), randomisation=Randomisation()))
    state = begun(world, 64)
    after, outcome = step(world, state)
    assert not outcome.terminated.any() and not outcome.truncated.any()
    assert np.ptp(state.observation, 0).max() > 0 and np.isfinite(after.observation).all()
    assert len(np.unique(state.body.qpos, axis=0)) == 64  # every episode begins elsewhere
    compiled = robot_jax.Robot(world.params)
    settings = Settings(*map(jnp.asarray, world.params.settings()))
    uniform = random.uniform(random.key(0), (64, world.start_numbers), "float32")
    still = jnp.zeros((64, world.model.nu), "float32")
    run = jax.jit(lambda uniform: compiled.step(None, settings, compiled.begin(None, settings, uniform), still)[1])
    assert not run(jnp.asarray(uniform)).terminated.any()


def test_falls_are_noticed_compiled_as_in_python():
    """D7: `if` on a tracer within try/except said False under jit."""
    assert list(detectors.unheard_falls(RobotParams())) == []


def test_the_limit_truncates_and_a_fall_is_no_truncation():
    """D13, D14: the flag is of the state before any reset, and never together with a fall."""
    world = Robot(RobotParams(limit=3))
    state = begun(world, 2)
    seen = []
    for _ in range(3):
        state, outcome = step(world, state)
        seen.append((outcome.terminated.tolist(), outcome.truncated.tolist()))
    assert seen == [([False] * 2, [False] * 2)] * 2 + [([False] * 2, [True] * 2)]
    lying = state._replace(body=state.body._replace(qpos=state.body.qpos + np.eye(9)[2] * np.pi / 2))
    _, outcome = step(world, lying)
    assert outcome.terminated.all() and not outcome.truncated.any()


def test_a_body_that_is_not_finite_ends_and_stays_as_it_was():
    world = Robot(RobotParams())
    state = begun(world, 2)
    qvel = state.body.qvel.copy()
    qvel[0, 4] = np.nan
    broken = state._replace(body=state.body._replace(qvel=qvel))
    after, outcome = step(world, broken)
    assert outcome.terminated.tolist() == [True, False] and outcome.told.broken.tolist() == [1, 0]
    np.testing.assert_array_equal(after.body.qpos[0], broken.body.qpos[0])
    assert np.isfinite(outcome.reward[1])


def test_the_ground_moves_the_robot_and_not_its_fall():
    high = Robot(RobotParams(randomisation=Randomisation(terrain=(0.5, 0.5))))
    low = Robot(RobotParams())
    up, down = begun(high), begun(low)
    for _ in range(20):
        (up, one), (down, other) = step(high, up), step(low, down)
    np.testing.assert_allclose(up.body.qpos[:, 1], down.body.qpos[:, 1] + 0.5, atol=1e-9)
    np.testing.assert_array_equal(one.terminated, other.terminated)
    np.testing.assert_allclose(up.observation[:, 23], down.observation[:, 23] + 0.5, atol=1e-9)


@pytest.mark.parametrize("name", ["stilt6", "sprig11"])
def test_a_push_changes_the_velocity_by_impulse_over_mass(name):
    pushed = Robot(RobotParams(model=name, randomisation=Randomisation(push=(0.5, 0.5), push_every=(2, 2))))
    state = begun(pushed)
    body = pushed._pushed(state)
    np.testing.assert_array_equal(body.qvel, state.body.qvel)  # step 1: not yet
    body = pushed._pushed(state._replace(t=state.t + np.int32(1)))
    change = body.qvel - state.body.qvel
    np.testing.assert_allclose(np.linalg.norm(change, axis=1), 0.5 / pushed.model.mass, rtol=1e-12)
    axes = 1 if name == "stilt6" else 2
    assert not change[:, axes:].any()


# What is seen


def test_gravity_turns_with_the_base():
    """D6: the published observation held the constant (0, 0, -1)."""
    model = SPRIG.load()
    qpos, angle = np.array(model.home), 0.3
    for axis, expected in ((1, (np.sin(angle), 0, -np.cos(angle))), (0, (0, -np.sin(angle), -np.cos(angle)))):
        qpos[3:7] = np.array([np.cos(angle / 2), *np.sin(angle / 2) * np.eye(3)[axis]])
        found = motion(model, Body(qpos, np.zeros(model.nv), np.zeros(model.nv)))
        np.testing.assert_allclose(found.gravity, expected, atol=1e-12)
        np.testing.assert_allclose([found.roll, found.pitch], np.eye(2)[axis] * angle, atol=1e-12)


def test_a_planar_robot_and_a_free_one_agree_on_pitch():
    planar = RobotParams().load()
    qpos = np.array(planar.home)
    qpos[2] = 0.4
    found = motion(planar, Body(qpos, np.eye(planar.nv)[2] * 2.0, np.zeros(planar.nv)))
    np.testing.assert_allclose(found.gravity, (np.sin(0.4), 0, -np.cos(0.4)), atol=1e-12)
    np.testing.assert_allclose([found.pitch, found.roll, found.turning], [0.4, 0, 0], atol=1e-12)


def test_speeds_are_those_along_the_heading():
    model, yaw = SPRIG.load(), 2.0
    qpos, qvel = np.array(model.home), np.zeros(model.nv)
    qpos[3:7] = np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)
    qvel[:2], qvel[5] = (np.cos(yaw), np.sin(yaw)), 0.7
    found = motion(model, Body(qpos, qvel, qvel))
    np.testing.assert_allclose([found.forward, found.sideways, found.turning], [1, 0, 0.7], atol=1e-9)


def test_the_phase_goes_round():
    """D6: the published phase was always 0."""
    world = Robot(RobotParams(frequency=2.0))  # 40 control steps per second: a turn in 20
    state = begun(world)
    phases = [state.observation[0, 21:23]]
    for _ in range(20):
        state, _ = step(world, state)
        phases.append(state.observation[0, 21:23])
    np.testing.assert_allclose(phases[5], [1, 0], atol=1e-12)
    np.testing.assert_allclose(phases[20], phases[0], atol=1e-12)


def test_the_observation_of_the_biped_is_the_published_44():
    model = SPRIG.load()
    body = bodies(model, 1)
    body = Body(*(part[0] for part in body))
    seen, now = observation(model, body, motion(model, body), np.arange(11.0), np.array(0.5), None), motion(model, body)
    assert seen.shape == (44,)
    np.testing.assert_array_equal(seen[:3], now.gravity)
    np.testing.assert_array_equal(seen[3:14], body.qpos[7:18])
    np.testing.assert_array_equal(seen[14:25], body.qvel[6:17])
    np.testing.assert_array_equal(seen[25:36], np.arange(11.0))
    np.testing.assert_allclose(seen[36:38], [np.sin(0.5), np.cos(0.5)])
    np.testing.assert_allclose(seen[38:], [now.height, now.pitch, now.roll, *now.com])


# Rewards


def test_terms_by_hand():
    model = RobotParams().load()
    qpos, qvel = np.array(model.home), np.zeros(model.nv)
    qpos[1], qpos[2], qpos[4], qvel[0], qvel[3] = qpos[1] + 0.05, 0.2, 2.3, 0.6, 2.0
    body = Body(qpos, qvel, qvel)
    action, last, command = np.full(6, 0.5), np.zeros(6), np.array([0.4, 0.1, 0.2])
    found = terms(model, body, motion(model, body), command, np.array(7.0), action, last, np.array(False))
    expected = {
        "velocity": np.exp(-8 * 0.04),
        "sideways": np.exp(-8 * 0.01),
        "turning": np.exp(-4 * 0.04),
        "upright": np.exp(-4 * 0.04),
        "height": np.exp(-200 * 0.0025),
        "alive": 1.0,
        "torque": 7.0,
        "action_rate": 1.5,
        "joint_velocity": 4.0,
        "joint_limits": 2.3 - 2.0,
    }
    assert {name: pytest.approx(value, rel=1e-9) for name, value in expected.items()} == {
        name: float(value) for name, value in found._asdict().items()
    }
    assert home_height(model) == pytest.approx(model.home[1])


def test_every_term_varies_and_a_constant_one_is_found():
    assert list(detectors.constant_terms(Robot(RobotParams()))) == []

    class Numb(Robot):
        def step(self, data, settings, state, action):
            after, outcome = super().step(data, settings, state, action)
            return after, outcome._replace(told=outcome.told._replace(reward_velocity=np.ones(len(state.t))))

    (problem,) = detectors.constant_terms(Numb(RobotParams()))
    assert "reward_velocity is always 1" in problem


def test_every_setting_is_read():
    """D11 and its like: settings that are accepted and never used."""
    assert list(detectors.unread_settings(RobotParams())) == []


def test_a_setting_that_nobody_reads_is_found(monkeypatch):
    monkeypatch.setattr(robot_numpy, "weighted", lambda terms, weights: terms)
    problems = list(detectors.unread_settings(RobotParams()))
    assert len(problems) == 10 and all("weights." in problem for problem in problems)


def test_no_error_is_swallowed():
    """D4: 91 `except Exception` in one file, behind which failing physics fell back to a point mass."""
    broad = [
        f"{path.name}:{node.lineno}"
        for path in Path(crossfade.envs.robot.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler) and (node.type is None or ast.unparse(node.type) == "Exception")
    ]
    assert not broad


# Bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kp": -1.0}, "kp: expected"),
        ({"forward": (0.5, 0.1)}, "forward: expected the least and the largest"),
        ({"least_upright": 2.0}, "least_upright: expected"),
        ({"limit": 0}, "limit: expected"),
    ],
)
def test_bad_params_are_refused(changes, message):
    with pytest.raises(UsageError, match=message):
        RobotParams(**changes)


def test_bad_ranges_and_weights_are_refused():
    with pytest.raises(UsageError, match="randomisation.mass: expected the least and the largest"):
        Randomisation(mass=(1.2, 0.8))
    with pytest.raises(UsageError, match="randomisation.latency"):
        Randomisation(latency=(0, 99))
    with pytest.raises(UsageError, match="weights.torque"):
        Weights(torque=float("nan"))
    with pytest.raises(UsageError, match="Did you mean 'stilt6'"):
        RobotParams(model="stilt").load()
