"""PPO's host parts and rollouts of trading, each against something computed another way."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from crossfade.algos.ppo.network_torch import ActorCritic
from crossfade.algos.ppo.start import draw_parameters
from crossfade.config import apply
from crossfade.errors import UsageError
from crossfade.nn import normalizer_numpy as normalizer
from crossfade.nn.categorical_torch import Categorical
from crossfade.random import random_numpy as random
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.system_torch import System

SMALL = ("n_envs=5", "n_steps=24", "hidden=8", "days=2", "eval_days=2", "env.window=3", "minibatches=2")


def config(*words: str) -> TradingConfig:
    return apply(TradingConfig(), (*SMALL, "max_bars=9", "drawdown=300", "dtype=float64", *words))


def test_statistics_of_parts_are_those_of_the_whole():
    x = np.random.default_rng(0).normal(3, 5, (300, 4))
    found = normalizer.start(4, "float64")
    for part in np.split(x, [1, 7, 100]):
        found = normalizer.merge(found, part)
    np.testing.assert_allclose(found.mean, x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.var, x.var(0), rtol=1e-12)
    assert found.count == 300
    assert np.abs(normalizer.normalize(found, np.full((1, 4), 1e6))).max() == 10


def test_a_count_too_large_to_grow_becomes_a_moving_average():
    full = normalizer.Statistics(np.zeros(1, "float32"), np.ones(1, "float32"), np.array(2.0**24, "float32"))
    found = normalizer.merge(full, np.full((1, 1), 2.0**24, "float32"))
    assert found.count == full.count and found.mean[0] > 0.5


@pytest.mark.parametrize("network", ["mlp", "seed"])
def test_initial_parameters_are_those_of_the_network(network):
    chosen = TradingConfig(network=network, hidden=8, dtype="float64")
    drawn = draw_parameters(chosen, 13, Categorical(3), random.key(0))
    module = ActorCritic(13, Categorical(3), chosen.architecture).double()
    module.load_state_dict({name: torch.tensor(array) for name, array in drawn.items()})
    weight = drawn["trunk.0.weight"]
    if network == "mlp":
        np.testing.assert_allclose(weight @ weight.T, 2 * np.eye(8), atol=1e-12)
        np.testing.assert_allclose((drawn["actor.0.weight"] ** 2).sum(1), 1e-4, rtol=1e-12)
    else:
        assert weight.std() == pytest.approx(13**-0.5, rel=0.03) and np.abs(weight).max() <= 2.28 * 13**-0.5


@pytest.mark.parametrize("words", [(), ("env.phase=2",)], ids=["phase 1", "phase 2"])
def test_accounts_stepped_one_by_one_are_those_stepped_together(words):
    system = System(config(*words))
    policy, one, two = system.make_policy(system.parameters()), system.start_buffer(), system.start_buffer()
    for step in range(3):
        slow, one = system.collect_one_by_one(policy, one, step)
        fast, two = system.collect(policy, two, step)
        assert slow.info == fast.info and slow.info["episodes"] > 0
        for name, mine, theirs in zip(fast.rollout._fields[1:], slow.rollout[1:], fast.rollout[1:], strict=True):
            assert np.array_equal(mine, theirs), name
        for mine, theirs in zip(
            (*one.state, *one.statistics, *one[2:]), (*two.state, *two.statistics, *two[2:]), strict=True
        ):
            assert np.array_equal(mine, theirs)


def test_the_value_after_a_step_is_the_next_one_unless_the_episode_was_cut_off():
    system = System(replace(config("normalize_observations=false"), drawdown=1e5))
    policy = system.make_policy(system.parameters())
    batch, carry = system.collect(policy, system.start_buffer(), 0)
    value, after, cut = batch.rollout.value, batch.rollout.next_value, batch.rollout.truncated
    assert cut.any() and not batch.rollout.terminated.any()
    assert np.array_equal(after[:-1][~cut[:-1]], value[1:][~cut[:-1]])
    assert (after[:-1][cut[:-1]] != value[1:][cut[:-1]]).all()
    assert (carry.episode_length < 9).all()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("markets=EZ",), "ES"),
        (("contracts=2",), "1 to 1 of ES"),
        (("rules=seed_jax", "env.rules.gaps=ignored"), "env.rules"),
        (("stop_atr=0",), "stop_atr"),
        (("minibatches=7",), "divisor"),
    ],
)
def test_settings_that_make_no_sense_are_refused(words, hint):
    with pytest.raises(UsageError, match=hint):
        apply(TradingConfig(), words)
