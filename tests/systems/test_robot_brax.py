"""Brax's trainer on the robots' world: the same episodes, judged the same way."""

import json
from dataclasses import fields
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.cli import main
from crossfade.config import apply
from crossfade.envs.robot.robot_jax import Robot
from crossfade.errors import UsageError
from crossfade.systems.robot import RECORD, config as config_module
from crossfade.systems.robot.config import RobotConfig
from crossfade.trainers.making import make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained")
PRESET = apply(RobotConfig(), RECORD.presets["brax"])
SMALL = apply(
    RobotConfig(), ("n_envs=16", "n_steps=8", "minibatches=4", "hidden=16", "eval_episodes=4", "env.limit=20")
)


@pytest.fixture(autouse=True)
def ranks_as_brax_has_them():
    with jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def brax_jax():
    from crossfade.systems.robot import brax_jax

    return brax_jax


@pytest.mark.slow
def test_an_environment_of_brax_is_our_world():
    """Ten steps: observations, rewards with their terms, and ends."""
    from crossfade.envs.brax import WorldEnv

    env, world = WorldEnv(SMALL.env, None, SMALL.settings(0)), Robot(SMALL.env)
    keys = jnp.asarray(np.arange(6, dtype=np.uint32).reshape(3, 2))
    theirs = jax.jit(env.reset)(keys)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, (world.start_numbers,)))(keys)
    settings = jax.tree.map(jnp.asarray, SMALL.settings(0))
    ours = world.begin(None, settings, uniform)
    step, own = jax.jit(env.step), jax.jit(lambda state, action: world.step(None, settings, state, action))
    for t in range(10):
        action = jnp.sin(t + jnp.arange(18.0)).reshape(3, 6)
        theirs, (ours, outcome) = step(theirs, action), own(ours, action)
        np.testing.assert_allclose(theirs.obs, ours.observation, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(theirs.reward, outcome.reward, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(theirs.done, outcome.terminated)
        np.testing.assert_allclose(theirs.metrics["told/speed"], outcome.told.speed, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("clip_value=0.2",), "say clip_value=none, or begin with --preset brax"),
        (("lr=1e-3",), "say lr_final=0.001,"),
        (("truncation=terminal", "target_kl=0.1"), "say truncation=mask target_kl=none,"),
        (("mode=torch",), "say mode=jax_full,"),
        (("style=amp",), "say style=none,"),
        (("n_envs=16", "minibatches=32"), "minibatches: expected a divisor of n_envs = 16, got 32"),
    ],
)
def test_what_brax_does_otherwise_is_refused(words, hint):
    with pytest.raises(UsageError, match=hint):
        apply(PRESET, ("trainer=brax", *words))


def test_every_setting_goes_to_brax_or_is_refused(brax_jax):
    """No setting of PPO is passed over: `options` reads it, or `trainer=brax` allows one value of it."""
    read = set()

    class Reading(RobotConfig):
        def __getattribute__(self, name):
            read.add(name)
            return super().__getattribute__(name)

    reading = Reading()
    read.clear()
    brax_jax.options(reading)
    bound = {*config_module.AS_BRAX, "lr_final", "style", "trainer", "level"}
    elsewhere = {"env", "steps", "eval_episodes", "floor", "schedule", "log_std_start", *RobotConfig.bookkeeping}
    assert {field.name for field in fields(RobotConfig)} - read - bound - elsewhere == set()


@pytest.mark.slow
def test_a_run_by_brax_is_logged_kept_and_judged_as_any(tmp_path, capsys):
    words = ["n_envs=8", "n_steps=4", "minibatches=2", "epochs=1", "hidden=8", "layers=1", "eval_episodes=2"]
    words += ["env.limit=20", "env.substeps=1", "steps=3", "chunk=2", "log_every=1", "trainer=brax"]
    assert main(["train", "robot", "--preset", "brax", *words, "--runs-dir", str(tmp_path), "--quiet", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    run = Path(told["run"])
    assert run.name.startswith("brax-stilt6")
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["env_steps"] for row in rows] == [32, 64, 96]
    losses = [row["train/loss"] for row in rows]
    assert len(set(losses)) == 3 and np.isfinite(losses).all()
    assert "Brax" in (run / "meta.json").read_text()
    assert main(["eval", str(run), "--episodes", "2", "--json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["eval/return"] == told["eval/return"]  # the checkpoint is the policy
    assert main(["train", "--resume", str(run), "steps=5", "--quiet"]) == 2
    assert "expected a run from its start" in capsys.readouterr().err
    assert main(["convert", str(run), "--to", "onnx", "--out", str(tmp_path / "policy.onnx")]) == 2


def test_what_the_preset_shares_with_brax_is_the_same_arithmetic():
    """Targets of the critic with ends and cut-offs, log-probabilities under tanh, and Adam's step, in float64."""
    import optax
    from brax.training.agents.ppo.losses import compute_gae
    from brax.training.distribution import NormalTanhDistribution

    from crossfade.algos.ppo.gae_jax import gae
    from crossfade.nn.gaussian_jax import Gaussian

    config, rng = PRESET, np.random.default_rng(0)
    with jax.enable_x64(True):
        reward, value = rng.normal(size=(2, 30, 5))
        last = rng.normal(size=5)
        terminated, truncated = (kind := rng.integers(0, 6, (30, 5))) == 0, kind == 1
        after = np.concatenate([value[1:], last[None]])
        given = map(jnp.asarray, (reward, value, after, terminated, truncated))
        ours = gae(*given, config.gamma, config.gae_lambda, config.truncation)
        targets, _ = compute_gae(
            *(jnp.asarray(x, float) for x in (truncated, terminated, reward, value, last)),
            lambda_=config.gae_lambda,
            discount=config.gamma,
        )
        np.testing.assert_allclose(ours + value, targets, rtol=1e-12)

        theirs, own = NormalTanhDistribution(3, min_std=0.0), Gaussian(3, config.squashed, config.log_std)
        loc, scale, action = rng.normal(size=(3, 7, 3))
        scale = np.exp(0.5 * scale)
        raw = jnp.concatenate([jnp.asarray(loc), jnp.log(jnp.expm1(jnp.asarray(scale)))], -1)
        outputs = jnp.concatenate([jnp.asarray(loc), jnp.log(jnp.asarray(scale))], -1)
        found = own.log_prob_and_entropy(outputs, jnp.asarray(action))[0]
        np.testing.assert_allclose(found, theirs.log_prob(raw, jnp.asarray(action)), rtol=1e-10)

    ours, theirs = optax.scale_by_adam(eps=config.adam_eps), optax.adam(config.lr)
    assert config.learning_rate(0) == config.learning_rate(config.steps) and config.clip_norm is None
    gradient = jnp.asarray([1e-3, -2.0])
    step, expected = (tx.update(gradient, tx.init(gradient))[0] for tx in (ours, theirs))
    np.testing.assert_allclose(-config.lr * step, expected, rtol=1e-6)


def test_an_error_within_brax_is_told(brax_jax, monkeypatch):
    from crossfade.systems.robot import brax_trainer_jax

    def broken(*_, **__):
        raise UsageError("broken on purpose")

    monkeypatch.setattr(brax_trainer_jax, "train", broken)
    with pytest.raises(UsageError, match="broken on purpose"):
        brax_trainer_jax.BraxTrainer(SMALL).run(0, 1)


@pytest.mark.slow
def test_brax_learns_to_stand():
    """From falls within a second to episodes that earn twice as much."""
    words = ("n_envs=64", "n_steps=20", "minibatches=8", "hidden=32", "steps=150", "env.limit=200", "lr=1e-3")
    config = apply(PRESET, ("trainer=brax", *words, "lr_final=1e-3", "entropy_coef=5e-3", "eval_episodes=16"))
    trainer = make_trainer(RECORD, config)
    first = trainer.evaluate().metrics["eval/return"]
    trainer.run(0, 150)
    assert trainer.evaluate().metrics["eval/return"] > 2 * first
