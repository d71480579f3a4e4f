"""A robot that imitates a gait: PPO with the style hook in every mode, its features, its report."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from contract import HALF, assert_close, assert_equal, everything, settings

from crossfade.algos.amp.config import AMPConfig
from crossfade.algos.amp.features_numpy import features
from crossfade.config import apply
from crossfade.envs.robot.params import RobotParams
from crossfade.envs.world import BoundWorld, make_world
from crossfade.errors import DataError, UsageError
from crossfade.random import random_numpy as random
from crossfade.registry import find
from crossfade.run import RunDir
from crossfade.run.metrics import encode
from crossfade.run.settings import MODES
from crossfade.systems.robot import style, watching_jax, watching_numpy
from crossfade.systems.robot.config import RobotConfig
from crossfade.systems.robot.evaluation import RobotEffort
from crossfade.systems.robot.summary import discriminator
from crossfade.systems.robot.verdict import judge
from crossfade.trainers.making import make_trainer, precision
from default_run import few

WORDS = ("style=amp", "style.hidden=16,8", "style.updates=2", "style.batch=16", "style.memory=48", "style.lr=1e-3")
ROBOTS = ("stilt6", "sprig11", "tuft8")


def preset(name: str, *words: str) -> RobotConfig:
    return apply(apply(RobotConfig(), find("robot").presets[name]), words)


@cache
def trained(mode: str, *words: str):
    """Metrics and the state after half a run, and after the whole of it."""
    config = apply(settings("robot", mode), (*WORDS, *words))
    with precision(config):
        trainer = make_trainer(find("robot"), config)
        return trainer.run(0, HALF), trainer.snapshot(), trainer.run(HALF, HALF), trainer.snapshot()


@pytest.mark.slow
@pytest.mark.parametrize("mode", few(MODES[1:], "jax_full"))
def test_every_mode_is_the_same_system_as_torch(mode):
    expected, found = trained("torch"), trained(mode)
    for i in (0, 2):
        assert_close(found[i], expected[i])
    for i in (1, 3):
        assert_close(everything(found[i]), everything(expected[i]))
    assert {"style_reward", "disc_accuracy", "disc_penalty", "mixed_reward"} <= set(found[0])


@pytest.mark.parametrize("mode", few(("torch", "jax_full"), "torch"))  # compiled: toy_style, in the contract
def test_a_run_goes_on_from_a_snapshot_bit_for_bit(mode):
    _, middle, metrics, end = trained(mode)
    config = apply(settings("robot", mode), WORDS)
    with precision(config):
        trainer = make_trainer(find("robot"), config, middle, HALF)
        assert_equal(trainer.run(HALF, HALF), metrics)
        assert_equal(everything(trainer.snapshot()), everything(end))


@pytest.mark.slow
def test_two_devices_give_the_run_of_one():
    one, two = trained("jax_full"), trained("jax_full", "devices=2")
    assert_close(two[2], one[2])
    assert_close(everything(two[3]), everything(one[3]))


@pytest.mark.parametrize("name", ROBOTS)
def test_features_of_robots_are_the_same_in_numpy_and_jax(name, x64):
    params = RobotParams(model=name)
    numpy, compiled = make_world(params, "numpy"), make_world(params, "jax")
    given = params.settings("float64")
    uniform = random.uniform(random.key(0), (6, numpy.start_numbers), "float32")
    state = numpy.begin(None, given, uniform)
    rng = np.random.default_rng(0)
    body = state.body._replace(
        qpos=state.body.qpos + rng.normal(0, 0.2, state.body.qpos.shape), qvel=rng.normal(size=state.body.qvel.shape)
    )
    if name != "stilt6":
        body.qpos[:, 3:7] /= np.linalg.norm(body.qpos[:, 3:7], axis=-1, keepdims=True)
    terrain = rng.uniform(-0.02, 0.02, 6)
    state = state._replace(body=body, variation=state.variation._replace(terrain=terrain))
    ours = watching_numpy.watch(BoundWorld(numpy, None, given), state)
    watch = jax.jit(lambda state: watching_jax.watch(BoundWorld(compiled, None, given), state))
    theirs = watch(jax.tree.map(jnp.asarray, state))
    np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-12)
    raised = body._replace(qpos=body.qpos.copy())
    up = 1 if name == "stilt6" else 2
    raised.qpos[:, up] -= terrain  # on a ground at 0
    flat = state._replace(body=raised, variation=state.variation._replace(terrain=0 * terrain))
    np.testing.assert_allclose(watching_numpy.watch(BoundWorld(numpy, None, given), flat), ours, atol=1e-12)
    assert ours.shape[1] == len(watching_numpy.skeleton(numpy.model).features)


@pytest.mark.parametrize("name", ROBOTS)
def test_every_robot_has_a_gait_within_its_joints(name):
    env = RobotParams(model=name)
    clip, model = style.clip_of(env, AMPConfig()), env.load()
    angles = clip.qpos[:, model.nq - len(model.links) + 1 :]
    low, high = np.array([(link.lower, link.upper) for link in model.links[1:]]).T
    assert (angles >= low - 1e-9).all() and (angles <= high + 1e-9).all()
    assert clip.clearance.min() == pytest.approx(0, abs=1e-9) and (clip.clearance.max(0) > 0.03).all()
    np.testing.assert_allclose(clip.qvel[:, 0], 0.4)
    together = np.corrcoef(clip.clearance.T)
    assert together[0, 1] < 0  # left and right in turn
    if name == "tuft8":
        assert together[0, 3] > 0.99 and together[1, 2] > 0.99  # diagonal legs


@pytest.mark.parametrize("name", ROBOTS)
def test_a_reference_that_is_replayed_is_watched_as_it_was_made(name):
    """Both kinds of transitions come from one function: no unit, frame, order of joints or contact can differ."""
    env = RobotParams(model=name)
    clip, world, given = style.clip_of(env, AMPConfig()), make_world(env, "numpy"), env.settings("float64")
    uniform = random.uniform(random.key(0), (len(clip.qpos), world.start_numbers), "float32")
    state = world.begin(None, given, uniform)
    state = state._replace(body=state.body._replace(qpos=clip.qpos, qvel=clip.qvel))
    seen = watching_numpy.watch(BoundWorld(world, None, given), state)
    expected = features(clip.qpos, clip.qvel, clip.clearance, clip.skeleton)
    np.testing.assert_allclose(seen, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ROBOTS)
def test_actions_of_the_preset_reach_what_its_gait_asks_of_every_joint(name):
    """At the default `env.scale` they do not: knees would have to bend half as far again as the largest action."""
    env = replace(preset("styled").env, model=name)
    model, clip = env.load(), style.clip_of(env, AMPConfig())
    away = np.abs(clip.qpos[:, np.asarray(model.joint_qpos)] - np.asarray(model.joint_home)).max()
    assert RobotParams().scale < away < env.scale


def test_a_faster_command_asks_for_more_frequent_steps():
    slow, fast = (style.clip_of(RobotParams(forward=(v, v)), AMPConfig()) for v in (0.4, 1.0))
    assert len(fast.qpos) < len(slow.qpos) and fast.qvel[:, 0].mean() == pytest.approx(1.0)


def test_clips_and_settings_that_do_not_fit_are_refused(tmp_path):
    clip = style.clip_of(RobotParams(model="sprig11"), AMPConfig())
    np.savez(tmp_path / "walk.npz", qpos=clip.qpos, fps=clip.fps)
    words = (f"style.clip={tmp_path / 'walk.npz'}", "style=amp")
    own = apply(RobotConfig(), (*words, "env.model=sprig11"))
    found = style.clip_of(own.env, own.style)
    np.testing.assert_allclose(found.qpos, clip.qpos) or np.testing.assert_allclose(found.clearance, clip.clearance)
    assert own.sources == (tmp_path / "walk.npz",)
    other = apply(RobotConfig(), words)
    with pytest.raises(DataError, match="expected a clip of this skeleton, 9 columns: x, z, pitch, l_hip"):
        style.clip_of(other.env, other.style)
    with pytest.raises(UsageError, match=r"style.memory: expected at least n_envs \* n_steps = 1280"):
        apply(RobotConfig(), ("style=amp", "style.memory=1000"))
    with pytest.raises(UsageError, match="style: unknown choice 'gail'"):
        apply(RobotConfig(), ("style=gail",))


def test_a_report_tells_the_health_of_the_discriminator(tmp_path):
    row = {"step": 4, "env_steps": 4, "updates": 4, "wall": 1.0}
    log = [encode({**row, "train/disc_accuracy": 0.7}), encode({**row, "step": 8, "eval/return": 1.0})]
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(log))
    assert (
        discriminator(tmp_path)
        == "discriminator [########............] 0.70 healthy, of which 0.55 to 0.75 is healthy."
    )
    (tmp_path / "metrics.jsonl").write_bytes(log[1])
    assert discriminator(tmp_path) is None


@pytest.mark.slow
def test_an_evaluation_says_how_far_the_style_is_and_in_what(tmp_path):
    config = apply(settings("robot", "torch", "float32"), (*WORDS, "env.limit=20"))
    trainer = make_trainer(find("robot"), config)
    found = trainer.evaluate(RobotEffort(episodes=3))
    rows = found.study["features"]
    assert found.metrics["eval/style_distance"] > 0.3 and rows[0]["ks"] >= rows[-1]["ks"]
    told = judge(RunDir(tmp_path), config, found, RobotEffort())
    assert any(line.startswith(rows[0]["feature"]) for line in told.lines)
    clip = style.clip_of(config.env, config.style)
    same = style.distances(config.env, config.style, [clip.qpos])
    assert max(distance.ks for distance in same) < 1e-9  # the reference is no distance from itself


@cache
def walked(*words: str) -> dict[str, float]:
    """The figures of the preset's greedy policy at the end of its run."""
    config = preset("styled", *words)
    trainer = make_trainer(find("robot"), config)
    trainer.run(0, config.steps)
    return trainer.evaluate().metrics


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_style_reward_brings_the_walk_nearer_to_the_reference(seed):
    """As a control the same run with a style reward that weighs nothing. Both walk: a speed within 30 % of the command,
    and no fall in 16 of 20 episodes."""
    styled, control = walked(f"seed={seed}"), walked(f"seed={seed}", "style.style_weight=0")
    assert styled["eval/style_distance"] < control["eval/style_distance"] - 0.03
    for found in (styled, control):
        assert 0.28 < found["eval/speed"] < 0.52 and found["eval/falls"] <= 0.2
