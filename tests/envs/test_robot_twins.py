"""The robot's world in NumPy and in JAX: equal in float64 from states of every kind, and from one key."""

from dataclasses import astuple, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from robot_world_cases import MODELS, bodies, randomised, states

from crossfade.envs.robot import (
    observation_jax,
    observation_numpy,
    randomisation_jax,
    randomisation_numpy,
    reward_jax,
    reward_numpy,
    robot_jax,
    robot_numpy,
)
from crossfade.envs.robot.mjcf import load
from crossfade.envs.robot.params import RobotParams, Settings, Weights
from crossfade.envs.robot.state import Motion, Terms
from crossfade.envs.world import World, make_world
from crossfade.random import random_numpy as random
from default_run import few

N = 10_000


def close(ours, theirs, tolerance: float):
    """Relative to each array's scale, of one dtype; whole numbers and flags are equal."""
    for x, y in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape
        if x.dtype.kind == "f":
            assert np.abs(x - y).max() <= tolerance * max(1.0, np.abs(x).max())
        else:
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("name", few(MODELS, "stilt6", "sprig11"))
def test_motion_observation_and_every_term_on_ten_thousand_states(name, x64):
    model, rng = load(name), np.random.default_rng(1)
    body = bodies(model, N)
    there = jax.tree.map(jnp.asarray, body)
    ours, theirs = (
        observation_numpy.motion(model, body),
        jax.jit(observation_jax.motion, static_argnums=0)(model, there),
    )
    for part, (mine, other) in zip(Motion._fields, zip(ours, theirs, strict=True), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12, err_msg=part)
    action, last, phase = rng.normal(size=(N, model.nu)), rng.normal(size=(N, model.nu)), rng.normal(size=N)
    command, effort, fallen = rng.normal(size=(N, 3)), rng.random(N), rng.random(N) < 0.5
    seen = observation_numpy.observation(model, body, ours, action, phase, command)
    given = jax.tree.map(jnp.asarray, (there, theirs, action, phase, command))
    observation = jax.jit(observation_jax.observation, static_argnums=0)
    np.testing.assert_allclose(seen, observation(model, *given), rtol=1e-12, atol=1e-12)
    assert seen.shape == (N, 3 * model.nu + 14)
    worth = reward_numpy.terms(model, body, ours, command, effort, action, last, fallen)
    given = jax.tree.map(jnp.asarray, (there, theirs, command, effort, action, last, fallen))
    compiled = jax.jit(reward_jax.terms, static_argnums=0)(model, *given)
    for term, mine, other in zip(Terms._fields, worth, compiled, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14, err_msg=term)
        assert np.ptp(mine) > 0, term


@pytest.mark.parametrize("name", few(MODELS, "stilt6"))
def test_ends_are_the_same_on_ten_thousand_states_compiled_or_not(name, x64):
    params = RobotParams(model=name)
    model, body = params.load(), bodies(params.load(), N)
    terrain = np.random.default_rng(0).uniform(-0.02, 0.02, N)
    ours = reward_numpy.has_fallen(model, params, body, observation_numpy.motion(model, body), terrain)

    def has_fallen(body, terrain):
        return reward_jax.has_fallen(model, params, body, observation_jax.motion(model, body), terrain)

    given = jax.tree.map(jnp.asarray, (body, terrain))
    np.testing.assert_array_equal(ours, has_fallen(*given))
    np.testing.assert_array_equal(ours, jax.jit(has_fallen)(*given))
    assert 0.1 < ours.mean() < 0.95


@pytest.mark.parametrize("name", few(MODELS, "stilt6"))
def test_steps_from_anywhere(name, x64):
    params = randomised(name, limit=20)
    ours, theirs = robot_numpy.Robot(params), robot_jax.Robot(params)
    settings, state = params.settings("float64"), states(ours, 512)
    action = np.random.default_rng(2).uniform(-1, 1, (512, ours.model.nu))
    after, outcome = ours.step(None, settings, state, action)
    given = jax.tree.map(jnp.asarray, (settings, state, action))
    compiled = jax.jit(lambda settings, state, action: theirs.step(None, settings, state, action))(*given)
    close((after, outcome), compiled, 1e-9)
    assert outcome.terminated.any() and outcome.truncated.any() and not (outcome.terminated & outcome.truncated).any()
    np.testing.assert_array_equal(outcome.truncated, (state.t + 1 >= 20) & ~outcome.terminated)
    close(outcome.reward, sum(outcome.told[: len(Terms._fields)]), 1e-12)


def test_episodes_from_one_key_are_the_same_for_a_second(x64):
    """Randomisation, latency, pushes and noise: with everything random, all states agree step by step."""
    params = randomised()
    ours, theirs = robot_numpy.Robot(params), robot_jax.Robot(params)
    settings = params.settings("float64")
    uniform = random.uniform(random.key(7), (16, ours.start_numbers), "float32")
    state, there = ours.begin(None, settings, uniform), jax.jit(theirs.begin)(None, settings, jnp.asarray(uniform))
    close(state, there, 1e-14)
    assert len(set(state.latency.tolist())) > 1 and len(set(state.push_every.tolist())) > 1
    step = jax.jit(lambda state, action: theirs.step(None, Settings(*map(jnp.asarray, settings)), state, action))
    for action in np.random.default_rng(0).uniform(-0.5, 0.5, (40, 16, ours.model.nu)):
        state, outcome = ours.step(None, settings, state, action)
        there, theirs_outcome = step(there, jnp.asarray(action))
        close((state, outcome), (there, theirs_outcome), 1e-8)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pushes_and_noise_are_the_same_from_one_key(dtype):
    with jax.enable_x64(dtype == "float64"):
        ranges, rng = randomised().randomisation, np.random.default_rng(0)
        key, t = rng.integers(0, 2**23, (64, 2)).astype(np.uint32), np.arange(64, dtype=np.int32)
        for name in ("stilt6", "sprig11"):
            pushed = randomisation_numpy.impulse(load(name), ranges, key, t, dtype)
            draw = jax.jit(randomisation_jax.impulse, static_argnums=(0, 1, 4))
            given = draw(load(name), ranges, jnp.asarray(key), jnp.asarray(t), dtype)
            np.testing.assert_allclose(pushed, given, rtol=1e-6 if dtype == "float32" else 1e-14, atol=1e-7)
            size = np.linalg.norm(pushed, axis=-1)
            assert ranges.push[0] <= size.min() and size.max() <= ranges.push[1] and size.std() > 0.05
        seen = randomisation_numpy.noise(ranges, key, t, 44, dtype)
        draw = jax.jit(lambda key, t: randomisation_jax.noise(ranges, key, t, 44, dtype))
        there = draw(jnp.asarray(key), jnp.asarray(t))
        np.testing.assert_allclose(seen, there, rtol=1e-6 if dtype == "float32" else 1e-13, atol=1e-9)
        assert 0.018 < seen.std() < 0.022
        assert not np.array_equal(seen[0], randomisation_numpy.noise(ranges, key, t + 1, 44, dtype)[0])


def test_one_robot_alone_goes_as_among_others(x64):
    params = randomised()
    world, settings = robot_numpy.Robot(params), randomised().settings("float64")
    uniform = random.uniform(random.key(3), (5, world.start_numbers), "float32")
    action = np.random.default_rng(0).uniform(-1, 1, (5, world.model.nu))
    together = world.step(None, settings, world.begin(None, settings, uniform), action)
    alone = world.step(None, settings, world.begin(None, settings, uniform[2]), action[2])
    close(jax.tree.map(lambda x: np.asarray(x)[2], together), alone, 1e-12)
    jaxed = robot_jax.Robot(params)
    begin, step = jax.jit(partial(jaxed.begin, None)), jax.jit(partial(jaxed.step, None))
    given = Settings(*map(jnp.asarray, settings))
    close(alone, step(given, begin(given, jnp.asarray(uniform[2])), jnp.asarray(action[2])), 1e-11)


@pytest.mark.slow
def test_chunks_change_nothing(x64):
    params = randomised(chunk=4)
    whole, chunked = robot_jax.Robot(replace(params, chunk=0)), robot_jax.Robot(params)
    settings = params.settings("float64")
    state = jax.tree.map(jnp.asarray, states(robot_numpy.Robot(params), 12))
    action = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (12, whole.model.nu)))
    run = lambda world: jax.jit(lambda state, action: world.step(None, settings, state, action))(state, action)
    close(run(whole), run(chunked), 1e-10)


def test_a_callback_steps_the_host(x64):
    params = randomised()
    settings, host = params.settings("float64"), robot_numpy.Robot(params)
    state, action = states(host, 6), np.random.default_rng(0).uniform(-1, 1, (6, host.model.nu))
    called = robot_jax.Robot(replace(params, callback=True))
    step = jax.jit(lambda state, action: called.step(None, Settings(*map(jnp.asarray, settings)), state, action))
    found = step(*jax.tree.map(jnp.asarray, (state, action)))
    close(host.step(None, settings, state, action), found, 0)


def test_both_keep_the_face_of_a_world():
    for side in ("numpy", "jax"):
        world = make_world(RobotParams(), side)
        assert isinstance(world, World) and hash(world) == hash(make_world(RobotParams(), side))
        assert world.observation_dim == 29 and world.action_space.dim == 6
    assert make_world(RobotParams(model="sprig11"), "numpy").observation_dim == 44
    assert len(astuple(Weights())) == len(Terms._fields)
