"""Trading in plain Python, NumPy and JAX is one environment: the same number in every field of every step."""

import hashlib

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from trading_cases import (
    ALL_RULES,
    ONE_SWITCH,
    RULES,
    Record,
    assert_equal,
    random_market,
    random_settings,
    walk_jax,
    walk_numpy,
    walk_scalar,
)

from crossfade.envs.trading import trading_jax, trading_numpy
from crossfade.envs.trading.market import Settings, State
from crossfade.envs.trading.params import START_NUMBERS, Reason, TradingParams
from crossfade.envs.trading.scalar import ScalarTrading
from crossfade.errors import UsageError
from default_run import few

MARKET = random_market()
CALM = random_market(seed=1, spread=5)
PHASE_2_ONLY = {"trail=same_bar", "break_even=sets", "trail_mask=in_position"}
SWITCHES = [(switch, phase) for switch in ONE_SWITCH for phase in (1, 3) if phase == 3 or switch not in PHASE_2_ONLY]
LEDGER = (*State._fields, "terminated", "truncated", "reason", "result")


def accounts(walked: Record, n: int) -> Record:
    return {name: column[:, :n] for name, column in walked.items() if name != "first"}


@pytest.mark.parametrize("phase", [*(pytest.param(phase, marks=pytest.mark.slow) for phase in (1, 2)), 3])
@pytest.mark.parametrize("rules", few(RULES, "seed_jax"))
def test_a_hundred_thousand_steps_are_equal(rules, phase):
    params, n = TradingParams(phase, rules=RULES[rules]), 256
    settings, published = random_settings(n), rules != "sound"
    walked = walk_numpy(params, MARKET, settings, 70, n)  # 3 phases x 3 rule sets x 256 accounts x 70 steps
    assert_equal(walk_jax(params, MARKET, settings, walked), walked, published)
    assert_equal(walk_scalar(params, MARKET, settings, walked, 16), accounts(walked, 16), published)
    assert set(np.unique(walked["reason"])) == set(range(Reason.CLOSED if phase < 3 else Reason.CLOSED + 1))
    assert (walked["trades"] * (walked["entry_t"] == walked["began"]) > 0).any()  # a position that it began with
    assert walked["terminated"].any() and walked["truncated"].any() and walked["illegal"].any()
    assert len(np.unique(walked["contracts"])) > 4  # sizes by risk
    nights = MARKET.session[walked["market"], walked["t"]] - MARKET.session[walked["market"], walked["began"]]
    assert set(np.unique(nights)) >= {0, 1, 2}


# Operation by operation, each of which is compiled: every third switch, in phase 3, which has all that phase 1 has.
QUICK = [case for case in SWITCHES if case[1] == 3][::3]
PLAIN = [case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow) for case in SWITCHES]


@pytest.mark.slow
@pytest.mark.parametrize(("switch", "phase"), PLAIN)
def test_each_switch_is_equal_without_jit(switch, phase):
    params, n = TradingParams(phase, window=2, rules=ONE_SWITCH[switch]), 1024
    settings, published = random_settings(n, seed=1), switch.startswith("reward")
    walked = walk_numpy(params, CALM, settings, 5, n)
    assert_equal(walk_jax(params, CALM, settings, walked, jit=False), walked, published)
    assert_equal(walk_scalar(params, CALM, settings, walked, 64), accounts(walked, 64), published)


@pytest.mark.parametrize(("switch", "phase"), SWITCHES)
def test_the_walk_notices_each_switch(switch, phase):
    settings, rules = random_settings(1024, seed=1), (RULES["sound"], ONE_SWITCH[switch])
    sound, flipped = (walk_numpy(TradingParams(phase, window=2, rules=each), CALM, settings, 5, 1024) for each in rules)
    with pytest.raises(AssertionError):
        assert_equal(flipped, sound)


def test_the_ledger_does_not_care_where_0_is():
    """The same bars far above and around 0, as crude oil had them: every account is the same to the cent."""
    params, settings, n = TradingParams(3), random_settings(64), 64
    sides = {side: getattr(MARKET, side) - np.int32(20_000) for side in ("open", "high", "low", "close")}
    low = MARKET._replace(**sides)
    assert (low.low < 0).any() and (low.high > 0).any()
    above, around = (walk_numpy(params, market, settings, 60, n) for market in (MARKET, low))
    levels = ("entry", "stop", "target", "observation")
    assert_equal(*({name: of[name] for name in of if name not in levels} for of in (around, above)))
    assert (around["trades"] > 0).any()
    assert_equal(walk_scalar(params, low, settings, around, 8), accounts(around, 8))


@pytest.mark.parametrize("broken", ["_ticks", "_worth", "_fee", "_floor"])
def test_the_walk_notices_a_broken_part(broken, monkeypatch):
    params, settings = TradingParams(3, window=2), random_settings(64)
    walked = walk_numpy(params, MARKET, settings, 4, 64)
    right = getattr(trading_jax, broken)
    monkeypatch.setattr(trading_jax, broken, lambda *given: right(*given) + 1)
    with pytest.raises(AssertionError):
        assert_equal(walk_jax(params, MARKET, settings, walked, jit=False), walked)


@pytest.mark.parametrize("phase", few((1, 3), 3))
def test_the_ledger_has_32_bits_where_jax_has_64(phase, x64):
    params, settings = TradingParams(phase, window=2), random_settings(64)
    walked = walk_numpy(params, MARKET, settings, 4, 64)
    found = walk_jax(params, MARKET, settings, walked, jit=False)
    assert_equal(found, walked)
    for record in (found, walked):
        assert {record[name].dtype for name in (*State._fields, "reason", "result")} == {np.dtype(np.int32)}
        assert record["observation"].dtype == record["reward"].dtype == np.float32


@pytest.mark.parametrize("jit", few((True, False), True))
def test_the_same_numbers_begin_the_same_episode(jit):
    """Uniform float32 numbers, up to the last one below 1: a product in float64 would now and then be another bar."""
    n, market = 200_000, random_market(bars=3000)
    env, settings = trading_numpy.Trading(TradingParams()), random_settings(n)
    uniform = np.random.default_rng(0).random((n, START_NUMBERS), np.float32)
    uniform[0], uniform[1] = 0, np.nextafter(np.float32(1), np.float32(0))
    state = env.begin(market, settings, uniform)
    begin = trading_jax.Trading(env.params).begin
    found = (jax.jit(begin) if jit else begin)(*jax.tree.map(jnp.asarray, (market, settings, uniform)))
    assert_equal(found._asdict(), state._asdict())

    assert set(state.market) == {0, 1, 2} and state.t.min() == market.start.min()
    np.testing.assert_array_equal(env.equity(market, state), settings.initial_cents)
    for share in (0, 300, 1024):
        assert (state.position != 0)[settings.forced == share].mean() == pytest.approx(share / 1024, abs=0.01)
    close, side, forced = market.close[state.market, state.t], state.position, state.position != 0
    assert set(side) == {-1, 0, 1}
    assert np.all(side * (close - state.stop) >= forced) and np.all(side * (state.target - close) >= forced)


def test_settings_written_into_the_program_give_the_same_observation():
    """XLA divides by a constant otherwise than by an argument."""
    settings = Settings(drawdown_cents=700_001)
    twins = trading_numpy.Trading(TradingParams(2)), trading_jax.Trading(TradingParams(2))
    t = np.arange(30, 330, dtype=np.int32)
    state = twins[0].reset(MARKET, settings, t % 3, t)
    state, _ = twins[0].step(MARKET, settings, state, t % 3)
    observe = jax.jit(lambda market, state: twins[1].observe(market, settings, state))
    found = observe(*jax.tree.map(jnp.asarray, (MARKET, state)))
    np.testing.assert_array_equal(found, twins[0].observe(MARKET, settings, state))


def test_a_window_that_begins_before_the_data_is_not_shown():
    params, m, t = TradingParams(window=3), np.zeros(2, np.int32), np.array([1, 2], np.int32)
    env = trading_jax.Trading(params)
    state = env.reset(MARKET, Settings(), jnp.asarray(m), jnp.asarray(t))
    seen = np.asarray(env.observe(jax.tree.map(jnp.asarray, MARKET), Settings(), state))
    assert np.isnan(seen[0, :33]).all() and np.isfinite(seen[1]).all()
    with pytest.raises(UsageError, match="bar 2 or later, got bar 1"):
        trading_numpy.Trading(params).reset(MARKET, Settings(), m, t)
    with pytest.raises(UsageError, match="bar 2 or later, got bar 1"):
        ScalarTrading(params, MARKET, Settings()).reset(0, 1)


def ledger_hash(walked: Record) -> str:
    """A digest of every integer of every step."""
    digest = hashlib.sha256()
    for name in LEDGER:
        digest.update(np.ascontiguousarray(walked[name], np.int32).tobytes())
    return digest.hexdigest()


@pytest.fixture
def unchecked():
    """No type checks at run time: they take most of the time of a step in plain Python."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.slow
@pytest.mark.parametrize("phase", [1, 2, 3])
@pytest.mark.parametrize("rules", RULES)
def test_a_million_steps_have_one_ledger_hash(rules, phase, unchecked):
    params, n = TradingParams(phase, window=2, rules=ALL_RULES[rules]), 5000
    market, settings = random_market(seed=3, bars=2000), random_settings(n, seed=4)
    walked = walk_numpy(params, market, settings, 200, n, seed=5)
    expected = ledger_hash(walked)
    assert ledger_hash(walk_jax(params, market, settings, walked)) == expected
    assert ledger_hash(walk_jax(params, market, settings, walked, jit=False)) == expected
    assert ledger_hash(walk_scalar(params, market, settings, walked, n, look=False)) == expected
