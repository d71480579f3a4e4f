"""A continuous world of one's own, trained by PPO: what the contract cannot know of it.

Its modes, runs and checkpoints are held to by the contract suite, with free deviations and clipped actions.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from contract import assert_close, everything, leaves
from toy_point import PointConfig, PointParams, point_jax, point_numpy, system_jax, system_torch

from crossfade.algos.ppo import learner_jax, learner_torch
from crossfade.algos.ppo.config import PPOConfig
from crossfade.envs.vector_numpy import OneByOne, Vectorized
from crossfade.envs.world import BoundWorld, Continuous, Envs, World, WorldParams, make_world
from crossfade.errors import CheckpointError, UsageError
from crossfade.registry import find
from crossfade.run.settings import MODES
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.system import as_saved
from default_run import few

POINT = find("toy_point:RECORD")
TINY = PointConfig(n_envs=4, n_steps=12, epochs=2, minibatches=2, hidden=8, layers=1, dtype="float64", steps=6, lr=0.01)
SQUASHED = replace(TINY, squashed=True, log_std="state")


def trained(config: PointConfig) -> dict[str, np.ndarray]:
    """Metrics of three updates and all that they leave."""
    with precision(config):
        trainer = make_trainer(POINT, config)
        return {**trainer.run(0, 3), **everything(trainer.snapshot())}


@pytest.fixture(scope="module")
def in_torch() -> dict[str, np.ndarray]:
    return trained(replace(SQUASHED, mode="torch"))


@pytest.mark.parametrize("mode", few(MODES[1:], "torch_pure", "jax_full"))
def test_squashed_actions_with_deviations_of_the_state_are_the_same_in_every_mode(mode, in_torch):
    assert_close(trained(replace(SQUASHED, mode=mode)), in_torch)
    assert in_torch["episodes"].all() and not any("log_std" in name for name in in_torch)
    assert not {"illegal", "action_0"} & set(in_torch), "there is no mask and there are no shares of actions"


def test_free_deviations_are_parameters_that_begin_as_they_are_told():
    """That they learn is proved by the contract: every parameter does."""
    assert system_torch.PointSystem(replace(TINY, log_std_start=-0.5)).parameters()["log_std"] == -0.5


KINDS = {"clipped": {}, "squashed": {"squashed": True, "log_std": "state"}}
QUICK = {("torch_pure", "squashed")}  # the modes are proved to be the same system
SLOW = [pytest.param(*pair, marks=pytest.mark.slow) for pair in product(MODES, KINDS) if pair not in QUICK]


@pytest.mark.parametrize(("mode", "kind"), [*sorted(QUICK), *SLOW])
def test_a_point_learns_to_go_to_zero(mode, kind):
    config = PointConfig(n_envs=32, n_steps=16, hidden=16, layers=1, lr=0.02, gamma=0.9, steps=30, mode=mode)
    trainer = make_trainer(POINT, replace(config, **KINDS[kind]))
    before = trainer.evaluate().metrics["eval/distance"]
    rewards = trainer.run(0, 30)["mean_reward"]
    after = trainer.evaluate().metrics["eval/distance"]
    assert before > 0.9 and after < 0.2, (before, after)
    assert rewards[-5:].mean() > rewards[:5].mean() / 2


def test_worlds_and_environments_keep_the_declared_face():
    params = PointParams("float64")
    world = make_world(params, "numpy")
    assert isinstance(params, WorldParams) and isinstance(world, World)
    assert isinstance(world, point_numpy.Point) and isinstance(make_world(params, "jax"), point_jax.Point)
    bound = BoundWorld(world, None, None)
    state = bound.begin(np.random.default_rng(0).random((5, 1), "float32"))
    together, apart = Vectorized(bound, state), OneByOne(bound, state)
    assert isinstance(together, Envs) and isinstance(apart, Envs)
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
    system, given = system_torch.PointSystem(TINY), []
    step = point_numpy.Point.step
    monkeypatch.setattr(point_numpy.Point, "step", lambda self, *args: given.append(args[-1]) or step(self, *args))
    batch, _ = system.collect(system.make_policy(system.parameters()), system.start_buffer(), 0)
    assert np.array_equal(np.clip(batch.rollout.action, -1, 1), np.stack(given)) and batch.rollout.state.mask is None
    assert (np.abs(batch.rollout.action) > 1).any()


def test_environments_of_another_size_are_refused():
    saved = as_saved(system_torch.PointSystem(TINY).start_buffer())
    with pytest.raises(CheckpointError, match=r"state.x: expected float64 \(8,\), got float64 \(4,\)"):
        system_torch.PointSystem(replace(TINY, n_envs=8)).start_buffer(saved)
    kept = system_torch.PointSystem(TINY).start_buffer(saved)
    assert all(map(np.array_equal, leaves(as_saved(kept)).values(), leaves(saved).values()))


def test_settings_of_another_kind_of_actions_are_refused():
    with pytest.raises(UsageError, match="floor: expected 0 where actions are numbers"):
        replace(TINY, floor=0.1)
    for learner in (learner_torch, learner_jax):
        with pytest.raises(UsageError, match="extend ContinuousPPOConfig, got PPOConfig"):
            learner.make_actions(PPOConfig(), Continuous(1))


def test_the_greedy_policy_is_the_same_in_both_halves(x64):
    """The mean, as the world is given it: clipped or squashed."""
    seen = 5 * np.random.default_rng(0).normal(size=(7, 2))
    for config in (TINY, SQUASHED):
        halves = system_torch.PointSystem(config), system_jax.PointSystem(config)
        parameters = {name: 3 * array + 0.5 for name, array in halves[0].parameters().items()}
        ours, theirs = (half.greedy(half.make_policy(parameters))(seen, None) for half in halves)
        np.testing.assert_allclose(theirs, ours, rtol=1e-12)
        mean = halves[0].make_policy(parameters)(torch.from_numpy(seen))[0].detach().numpy()[:, :1]
        assert np.abs(mean).max() > 1
        np.testing.assert_allclose(ours, np.tanh(mean) if config.squashed else np.clip(mean, -1, 1), rtol=1e-12)
