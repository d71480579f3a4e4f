"""PPO where actions are numbers: five modes are the same system, it learns, and what does not fit is refused."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import torch
from ppo_point import RECORD, JaxPoint, Point, PointConfig, TorchPoint

from crossfade.algos.ppo import learner_torch
from crossfade.algos.ppo.config import PPOConfig
from crossfade.envs.vector_numpy import OneByOne, Vectorized
from crossfade.envs.world import Continuous, Envs, World
from crossfade.errors import CheckpointError, UsageError
from crossfade.run.settings import MODES
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.system import Snapshot, as_saved

TINY = PointConfig(n_envs=4, n_steps=12, epochs=2, minibatches=2, hidden=8, layers=1, dtype="float64", steps=6, lr=0.01)
KINDS = {
    "free deviations, clipped": TINY,
    "deviations of the state, squashed": replace(TINY, squashed=True, log_std="state"),
}
kinds = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torch_pure as plain torch: torch.compile cannot trace the type checks of the test run."""
    monkeypatch.setattr(torch, "compile", lambda function: function)


def leaves(tree, prefix="") -> dict[str, np.ndarray]:
    if not isinstance(tree, dict):
        return {prefix: np.asarray(tree)}
    return {name: leaf for key, part in tree.items() for name, leaf in leaves(part, f"{prefix}/{key}").items()}


@lru_cache
def trained(config: PointConfig, snapshot: Snapshot | None = None, step: int = 0):
    """Metrics of three updates and all that they leave."""
    with precision(config):
        trainer = make_trainer(RECORD, config, snapshot, step)
        metrics, end = trainer.run(step, 3), trainer.snapshot()
    moments = {name: state.moments for name, state in end.optimizers.items()}
    return leaves({"m": metrics, "p": end.parameters, "o": moments, "b": end.buffer})


@kinds
@pytest.mark.parametrize("mode", MODES[1:])
def test_every_mode_is_the_same_system_as_torch(mode, config):
    found, expected = trained(replace(config, mode=mode)), trained(replace(config, mode="torch"))
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        scale = max(np.abs(leaf).max(), 1e-12)
        assert np.abs(found[name] - leaf).max() / scale <= 1e-9, name
    assert expected["/m/episodes"].all() and "/m/action_share_0" not in expected and "/m/illegal" not in expected
    assert ("/p/log_std" in expected) == (config.log_std == "free")


def test_free_deviations_learn():
    start = TorchPoint(replace(TINY, log_std_start=-0.5)).parameters()["log_std"]
    assert start == -0.5 and (np.abs(trained(replace(TINY, mode="torch"))["/p/log_std"]) > 1e-3).all()


@pytest.mark.parametrize("changes", [{}, {"squashed": True, "log_std": "state"}], ids=["clipped", "squashed"])
def test_a_point_learns_to_go_to_zero(changes):
    config = PointConfig(n_envs=64, n_steps=16, hidden=16, layers=1, lr=0.01, gamma=0.9, steps=40, **changes)
    trainer = make_trainer(RECORD, config)
    before = trainer.evaluate().metrics["eval/distance"]
    rewards = trainer.run(0, 40)["mean_reward"]
    after = trainer.evaluate().metrics["eval/distance"]
    assert before > 0.9 and after < 0.15, (before, after)
    assert rewards[-5:].mean() > rewards[:5].mean() / 2


def test_worlds_and_environments_keep_the_declared_face():
    world = Point(np, "float64")
    state = world.begin(None, None, np.random.default_rng(0).random((5, 1), "float32"))
    together, apart = Vectorized(world, None, None, state), OneByOne(world, None, None, state)
    assert isinstance(world, World) and isinstance(together, Envs) and isinstance(apart, Envs)
    rng = np.random.default_rng(1)
    for _ in range(12):
        assert np.array_equal(together.observe(), apart.observe()) and together.mask() is apart.mask() is None
        action, uniform = rng.normal(size=(5, 1)), rng.random((5, 1), "float32")
        one, two = together.step(action), apart.step(action)
        assert all(map(np.array_equal, one, two))
        ended = one.terminated | one.truncated
        together.restart(ended, uniform)
        apart.restart(ended, uniform)
    for mine, other in zip(together.state, apart.state, strict=True):
        assert np.array_equal(mine, other) and mine.dtype == other.dtype


def test_what_is_kept_of_actions_is_what_was_sampled_and_the_world_gets_what_is_executed(monkeypatch):
    system, given = TorchPoint(TINY), []
    step = Point.step
    monkeypatch.setattr(Point, "step", lambda self, *args: given.append(args[-1]) or step(self, *args))
    batch, _ = system.collect(system.make_policy(system.parameters()), system.start_buffer(), 0)
    assert np.array_equal(np.clip(batch.rollout.action, -1, 1), np.stack(given)) and batch.rollout.state.mask is None
    assert (np.abs(batch.rollout.action) > 1).any()


def test_environments_of_another_size_are_refused():
    saved = as_saved(TorchPoint(TINY).start_buffer())
    with pytest.raises(CheckpointError, match=r"state.x: expected float64 \(8,\), got float64 \(4,\)"):
        TorchPoint(replace(TINY, n_envs=8)).start_buffer(saved)
    kept = TorchPoint(TINY).start_buffer(saved)
    assert all(map(np.array_equal, leaves(as_saved(kept)).values(), leaves(saved).values()))


def test_settings_of_another_kind_of_actions_are_refused():
    with pytest.raises(UsageError, match="floor: expected 0 where actions are numbers"):
        replace(TINY, floor=0.1)
    with pytest.raises(UsageError, match="extend ContinuousPPOConfig, got PPOConfig"):
        learner_torch.make_actions(PPOConfig(), Continuous(1))


@pytest.mark.parametrize("half", [TorchPoint, JaxPoint])
def test_the_halves_begin_alike(half, x64):
    system = half(TINY)
    assert list(system.parameters()) == [
        name for name in TorchPoint(TINY).make_policy(system.parameters()).state_dict()
    ]
    policy = system.make_policy(system.parameters())
    seen = np.random.default_rng(0).normal(size=(3, 2))
    assert system.greedy(policy)(seen, None).shape == (3, 1)
