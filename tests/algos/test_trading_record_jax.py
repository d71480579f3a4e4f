"""Evaluation in one compiled call: what NumPy records session by session, for every checkpoint at once."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppo_toy import actions, parameters, small

from crossfade.algos.ppo import learner_jax
from crossfade.envs.trading import build, synthetic, trading_jax, trading_numpy
from crossfade.envs.trading.market import Settings
from crossfade.envs.trading.params import Reason, TradingParams
from crossfade.nn import normalizer_jax, normalizer_numpy
from crossfade.systems.trading.judging import record, record_jax
from default_run import few

PARAMS = TradingParams(phase=2, window=3)
CONFIG = small(dtype="float32", layers=1, hidden=8)
SETTINGS = Settings(drawdown_cents=40_000, liquidation_cents=5_000)
CHECKPOINTS, BARS = 2, 70


def sessions():
    """Many begin in the middle of a session: some of those end within `BARS` bars, others do not."""
    found = [(m, t) for m, n in enumerate(market().n_start) for t in market().start[m, :n:23]]
    m, t = np.array(found, np.int32).T
    return m, t


@cache
def market():
    """Two contracts with half-days among their days, the second with fewer of them, so that its data end first."""
    long, short = (synthetic.bars(("ES", "NQ"), days, 3, "halfdays") for days in (4, 3))
    return build.market({"ES": long["ES"], "NQ": short["NQ"]})


@cache
def checkpoints():
    """Policies of strong opinions, and what each knows of observations."""
    dim, rng = PARAMS.observation_dim, np.random.default_rng(0)
    policies = [
        learner_jax.make_policy(CONFIG, dim, actions(CONFIG, 6), parameters(CONFIG, dim, 6, seed=seed, scale=3.0))
        for seed in range(CHECKPOINTS)
    ]
    start = normalizer_numpy.start(dim, "float32")
    return policies, [normalizer_numpy.merge(start, rng.normal(size=(50, dim)).astype("float32")) for _ in policies]


def of(i, records):
    """The record of one checkpoint."""
    return jax.tree.map(lambda column: column[i], records)


def compiled(settings=SETTINGS, normalised=True):
    policies, statistics = checkpoints()
    stacked = record_jax.stack([normalizer_jax.Statistics(*each) for each in statistics]) if normalised else None
    env, on_device = trading_jax.Trading(PARAMS), jax.tree.map(jnp.asarray, (market(), settings))
    return record_jax.trade(record_jax.stack(policies), stacked, env, *on_device, *sessions(), n_bars=BARS)


def by_numpy(i, settings=SETTINGS, normalised=True):
    policies, statistics = checkpoints()
    env, forward = trading_numpy.Trading(PARAMS), jax.jit(lambda policy, seen: policy(seen)[0])

    def decide(row, state, mask):
        seen = env.observe(market(), settings, state)
        seen = normalizer_numpy.normalize(statistics[i], seen) if normalised else seen
        return np.argmax(np.where(mask, forward(policies[i], seen), -np.inf), -1).astype(np.int32)

    return record.trade(env, market(), settings, *sessions(), decide, BARS)


def assert_same(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)


@pytest.mark.parametrize("normalised", few((True, False), True))
def test_every_checkpoint_is_recorded_as_numpy_records_it(normalised):
    found = compiled(normalised=normalised)
    for i in range(CHECKPOINTS):
        assert_same(of(i, found), by_numpy(i, normalised=normalised))
    assert len(np.unique(found.equity[:, -1], axis=0)) == CHECKPOINTS
    if normalised:
        assert set(np.unique(found.reason)) == set(range(Reason.BUST + 1))
        assert found.bust.any() and 0 < found.running[:, -1].sum() < found.running[:, -1].size


def test_the_contracts_of_a_bar_are_those_that_its_costs_were_paid_for():
    """Without slippage a bar costs a dollar per contract for each entry and exit, also where both are in one bar."""
    sized = SETTINGS._replace(contracts=4, risk_cents=30_000, commission_cents=100, slippage=0, drawdown_cents=400_000)
    found = jax.tree.map(np.asarray, compiled(sized))
    closed, held_before = found.reason != Reason.NONE, np.roll(found.position, 1, 1) != 0
    held_before[:, 0] = False
    opened = ~held_before & (closed | (found.position != 0))
    np.testing.assert_array_equal(found.cost, 100 * found.contracts * (opened * 1 + closed))
    np.testing.assert_array_equal(found.contracts > 0, closed | (found.position != 0))
    assert set(np.unique(found.contracts)) == {0, 1, 2, 3, 4} and (opened & closed).any()


def test_the_record_notices_another_checkpoint_and_another_setting():
    found = of(0, compiled())
    for other in (by_numpy(1), by_numpy(0, SETTINGS._replace(stop_64=95)), by_numpy(0, normalised=False)):
        with pytest.raises(AssertionError):
            assert_same(found, other)


def test_more_checkpoints_of_the_same_number_compile_nothing():
    compiled()
    before = record_jax.trade._cache_size()
    compiled(SETTINGS._replace(stop_64=200, drawdown_cents=90_000))
    assert record_jax.trade._cache_size() == before
