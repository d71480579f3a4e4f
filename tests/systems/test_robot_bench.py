"""The bench of robots compares like with like, and judges as it says."""

import numpy as np
import pytest

from crossfade.algos.ppo import rollout_numpy
from crossfade.bench.contest import ALONE
from crossfade.config import apply
from crossfade.random import random_numpy as random
from crossfade.systems.robot import RECORD, bench, bench_worker
from crossfade.systems.robot.bench import (
    APART,
    BRAX,
    BRAX_WORDS,
    JAX,
    LEVEL_3,
    LOOP,
    NUMPY,
    PROMISES,
    PURE,
    SETTINGS,
    TRAINING,
    WORLD,
)
from crossfade.systems.robot.bench_worker import JaxWorld, LoopWorld, NumpyWorld, Ppo, Task, draw_natively
from crossfade.systems.robot.config import RobotConfig


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """Few steps; and contenders change their process, which is undone here."""
    monkeypatch.setattr(bench_worker, "STEPS", 4)
    monkeypatch.setattr(rollout_numpy, "draw", rollout_numpy.draw)


def test_worlds_do_the_same_work():
    fast, vectorised = JaxWorld(6, model="stilt6"), NumpyWorld(6, model="stilt6")
    for world in (fast, vectorised):
        world.once()
    assert fast.steps == vectorised.steps == 24
    found, expected = np.asarray(fast.state.body.qpos), vectorised.robots.state.body.qpos
    np.testing.assert_allclose(found, expected, atol=1e-4)
    assert np.abs(expected - Task(6, "stilt6").host.model.home).max() > 0.01


def test_the_loop_walks_as_the_world_does():
    """One robot after the other, lean, sees and does what the vectorised world of the same physics does."""
    loop, world = LoopWorld(2), NumpyWorld(2, "mujoco")
    host, middle = world.task.host, np.full((2, world.task.host.start_numbers), 0.5, "float32")
    world.robots.state = host.begin(None, world.task.settings, middle)
    loop.once()
    world.once()
    found = np.stack([data.qpos for data in loop.robots])
    np.testing.assert_allclose(found, world.robots.state.body.qpos, atol=1e-4)
    seen = np.stack([loop._seen(i, data) for i, data in enumerate(loop.robots)])
    np.testing.assert_allclose(seen[:, :41], world.robots.observe()[:, :41], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("words", [["mode=torch"], ["level=1"], ["level=2"], ["level=3"]])
def test_a_contender_trains(words):
    contender = Ppo([*RECORD.tiny[:6], *words])
    contender.once()
    contender.once()
    assert contender.update == 2 and np.isfinite(contender.told["loss"]).all()


@pytest.mark.parametrize("words", [(), BRAX_WORDS], ids=["ours", "as Brax has it"])
def test_native_noise_has_the_form_of_the_shared_one(words):
    from crossfade.nn.gaussian_jax import Gaussian

    config = apply(apply(RobotConfig(), RECORD.tiny), words)
    given = random.key(0), config, Gaussian(6), 18
    ours, shared = draw_natively(*given), rollout_numpy.draw(*given)
    assert (ours.entropy is None) == (shared.entropy is None) == (not words)
    assert [x.shape for x in ours if x is not None] == [x.shape for x in shared if x is not None]
    assert [x.dtype for x in ours[:2]] == [x.dtype for x in shared[:2]]
    robots = [noise.order.reshape(2, 2, 8, 2) % 4 for noise in (ours, shared)]  # epochs, minibatches, steps, robots
    assert [bool((row == row[:, :, :1]).all()) for row in robots] == [bool(words)] * 2  # whole segments, time first


def test_settings_of_contenders_are_those_that_are_compared():
    """Every contender trains the same robot with as many samples, passes and minibatches; settings of Brax are such."""
    for setting, name, request in [(s, n, r) for s in (TRAINING, APART) for n, r in SETTINGS[s].items()]:
        config = apply(RobotConfig(), request["words"])
        sizes = config.n_envs, config.n_steps, config.minibatches, config.epochs, config.hidden, config.layers
        assert sizes == (64, 20, 8, 4, 128 if setting == APART else 64, 2) and config.env.model == "sprig11"
        assert config.apart == (setting == APART or "Brax" in name)
        assert ("mujoco" in name) == (config.env.physics == "mujoco")
        assert ("Brax" in name) == (config.squashed and config.truncation == "mask" and config.clip == 0.3)
        assert (request["kind"] == "brax") == (config.trainer == "brax")


def test_promises_are_about_contenders_that_are_there():
    for promise in PROMISES:
        assert {promise.contender, promise.baseline or promise.contender} <= set(SETTINGS[promise.setting])
    assert {WORLD, TRAINING, APART} == set(SETTINGS)
    quick = {name: bench._quick(SETTINGS[name]) for name in (WORLD, TRAINING)}
    assert {JAX, LOOP, NUMPY} <= set(quick[WORLD]) and {LEVEL_3, PURE} <= set(quick[TRAINING])


def test_promises_are_kept_by_ratios_within_rounds():
    rounds = lambda seconds, compiling=1.0: {
        "rounds": [{"wall_step": seconds}] * 3,
        "steps": 1 / seconds,
        "gigabytes": 1.0,
        "compile_s": compiling,
    }
    settings = {
        WORLD: {LOOP: rounds(16.0), NUMPY: rounds(4.0), JAX: rounds(1.0, 14.0)},
        TRAINING: {PURE: rounds(2.0), LEVEL_3: rounds(1.0), LEVEL_3 + ALONE: rounds(2.0, 16.0)},
        APART: {BRAX: rounds(2.5), LEVEL_3: rounds(1.0)},
    }
    assert [row["kept"] for row in bench.promises(settings)] == [True, False, True, True, False, False]


def test_arithmetic_of_a_step():
    """44 inputs, trunk 64-64, actor 11, critic 1: forward 2 (44 64 + 64 64 + 64 12), and four times thrice that."""
    forward = 2 * (44 * 64 + 64 * 64 + 64 * 12)
    found = bench.flops_per_step((*bench.SIZES, bench.NARROW))
    assert 1 + 4 * 2.5 < found / forward < 1 + 4 * 3
    assert bench.flops({"kind": "jax"}) is None
