"""A hook between rollouts and advantages: the one that learns a style, on the point, which keeps the contract too."""

from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from contract import HALF, assert_close, everything, settings
from toy_point.system_torch import PointSystem
from toy_style import system_jax, system_torch

from crossfade.algos.amp.health import health
from crossfade.algos.amp.losses_torch import style_reward
from crossfade.algos.ppo.hook import CompiledHook, Hook
from crossfade.config import apply
from crossfade.errors import CheckpointError, UsageError
from crossfade.nn.normalizer_numpy import Statistics, normalize
from crossfade.registry import find
from crossfade.systems.ppo_population_jax import PPOPopulation
from crossfade.trainers.making import make_trainer, precision

STYLED, PLAIN = "toy_style:RECORD", "toy_point:RECORD"
PLAIN_WEIGHTS = ("style.task_weight=1", "style.style_weight=0")


@cache
def trained(system: str, mode: str, *words: str, updates: int = HALF):
    """Metrics and the state after some updates."""
    config = apply(settings(system, mode), words)
    with precision(config):
        trainer = make_trainer(find(system), config)
        return trainer.run(0, updates), trainer.snapshot()


def test_hooks_keep_their_protocols():
    config = settings(STYLED, "jax_full")
    assert isinstance(system_torch.StyledPointSystem(config).hook, Hook)
    with precision(config):
        assert isinstance(system_jax.StyledPointSystem(config).hook, CompiledHook)


@pytest.mark.parametrize("mode", ["torch", "jax_full"])
def test_a_hook_that_weighs_nothing_changes_nothing(mode):
    """The same actions, rewards, gradients and parameters as without a hook, though it learns on: bit for bit in torch;
    compiled, the two are different programs, whose sums XLA may order in its own ways."""
    ours, after = trained(STYLED, mode, *PLAIN_WEIGHTS)
    plain, expected = trained(PLAIN, mode)
    same = np.array_equal if mode == "torch" else partial(np.allclose, rtol=1e-12, atol=1e-14)
    for name, column in plain.items():
        assert same(ours[name], column), name
    for name, array in expected.parameters.items():
        assert same(after.parameters[name], array), name
    assert set(after.parameters) - set(expected.parameters) == set(after.optimizers["discriminator"].trained)
    assert not np.array_equal(trained(STYLED, mode)[1].parameters["actor.0.weight"], after.parameters["actor.0.weight"])


def test_rewards_are_those_of_the_discriminator_before_it_learned_and_of_states_before_resets():
    """The transitions of a rollout by hand: the state before each step and the one after it, never a fresh one."""
    config = settings(STYLED, "torch")
    system = system_torch.StyledPointSystem(config)
    policy, plain = system.make_policy(system.parameters()), PointSystem(config)
    batch, carry = system.collect(policy, system.start_buffer(), 0)
    bare, _ = plain.collect(plain.make_policy(plain.parameters()), plain.start_buffer(), 0)
    x = batch.hooked.policy[0, 0]
    assert batch.rollout.watched is None and x.shape == (4,)
    rows = carry.aux.transition[: int(carry.aux.size)].reshape(config.n_steps, config.n_envs, 4)
    mean, deviation = system.hook.reference.mean, system.hook.reference.deviation
    before, after = (np.round(part * deviation + mean, 12) for part in (rows[..., :2], rows[..., 2:]))
    np.testing.assert_allclose(8 * (after - before)[..., 1], 1, atol=1e-9)  # time goes on by one: no reset in between
    following = ~(bare.rollout.terminated | bare.rollout.truncated)[:-1]
    assert following.any() and not following.all()
    np.testing.assert_allclose(after[:-1][following], before[1:][following], atol=1e-9)
    assert (np.abs(after[:-1] - before[1:])[~following].max(-1) > 1e-3).all()
    with torch.no_grad():
        style = style_reward(policy.discriminator(torch.from_numpy(rows)), "lsgan_pm1").numpy()
    np.testing.assert_allclose(batch.rollout.reward, 0.5 * bare.rollout.reward + 0.5 * style, rtol=1e-12)
    assert batch.info["style_reward"] == pytest.approx(style.mean())


@pytest.mark.slow
def test_the_memory_goes_round_and_its_rows_are_drawn():
    """D11: 48 transitions each time into 64 places."""
    _, first = trained(STYLED, "jax_full", updates=1)
    _, later = trained(STYLED, "jax_full")
    assert int(first.buffer["aux"]["size"]) == 48 and int(later.buffer["aux"]["size"]) == 64
    assert int(later.buffer["aux"]["index"]) == HALF * 48 % 64
    assert not np.array_equal(first.buffer["aux"]["transition"][:48], later.buffer["aux"]["transition"][:48])
    system = system_torch.StyledPointSystem(settings(STYLED, "torch"))
    policy, buffer = system.make_policy(system.parameters()), system.start_buffer()
    batch, _ = system.collect(policy, buffer, 0)
    full = buffer._replace(aux=buffer.aux._replace(transition=buffer.aux.transition + 3, size=np.int32(64)))
    other, _ = system.collect(policy, full, 0)
    assert (batch.hooked.policy != other.hooked.policy).any()  # what was remembered before is drawn too


@pytest.mark.parametrize("devices", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_one_seed_gives_the_same_run_on_any_number_of_devices(devices):
    metrics, state = trained(STYLED, "jax_full")
    shared, found = trained(STYLED, "jax_full", f"devices={devices}")
    assert_close(shared, metrics)
    assert_close(everything(found), everything(state))


def out_of_style(trainer) -> float:
    """How far the greedy policy is from the reference, which takes a fifth of the way: the action -0.4 x."""
    act, t = trainer.system.greedy(trainer.policy), np.tile(np.arange(8), 2)
    x = np.repeat([2.0, -2.0], 8) * 0.8**t
    seen = normalize(Statistics(*map(np.asarray, trainer.buffer.statistics)), np.stack([x, t / 8], -1))
    return float(np.abs(act(seen, None)[:, 0] + 0.4 * x).mean())


@pytest.mark.slow
def test_the_style_is_learned_by_its_reward_alone():
    """No discriminator is asked: as it learns too, its rewards need not rise."""
    words = ("n_envs=64", "n_steps=16", "hidden=32", "steps=400", "lr=1e-3", "log_std_start=-1.5", "entropy_coef=0")
    words += ("style.task_weight=0", "style.style_weight=1", "style.memory=8192", "style.batch=128", "style.lr=1e-3")
    config = apply(settings(STYLED, "jax_full"), words)
    with precision(config):
        trainer = make_trainer(find(STYLED), config)
        before, metrics = out_of_style(trainer), trainer.run(0, 400)
        assert before > 0.4 and out_of_style(trainer) < 0.2
    assert health(metrics["disc_accuracy"][-50:].mean()) == "healthy"


def test_a_run_without_a_hook_and_one_with_it_do_not_take_over_from_each_other():
    _, plain = trained(PLAIN, "torch")
    with pytest.raises(CheckpointError, match="discriminator"):
        make_trainer(find(STYLED), settings(STYLED, "torch"), plain, HALF)


def test_a_population_refuses_a_hook():
    config = settings(STYLED, "jax_full")
    with precision(config), pytest.raises(UsageError, match="a population learns no discriminator"):
        PPOPopulation([config, replace(config, seed=1)], system_jax.StyledPointSystem)
