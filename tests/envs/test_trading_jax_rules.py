"""Trading in JAX by numbers worked out by hand: the floor as an order, leaving, sizing, several days, costs, types.

A tick is $10 of one contract, slippage one tick, commission 50 cents per side, the stop 4 ticks away, the target 12,
unless a test says otherwise. A long that is bought at an open of 100 has entry 101, stop 97, target 113.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from crossfade.envs.trading import trading_jax
from crossfade.envs.trading.contracts import contract
from crossfade.envs.trading.market import Market, Outcome, Settings, State
from crossfade.envs.trading.params import Action, Reason, Rules, TradingParams
from crossfade.envs.trading.trading_jax import Trading

HOLD, BUY, SELL, TRAIL, CLOSE = Action.HOLD, Action.BUY, Action.SELL, Action.TRAIL, Action.CLOSE
QUIET = (100, 101, 99, 100)
USUAL = Settings(stop_64=64, stop_cap_cents=10**9)
WIDE = USUAL._replace(stop_64=640)  # 40 ticks: only the floor is near
Seen = list[dict[str, Any]]


def market(bars: list[tuple[int, int, int, int]], last: tuple[int, ...] = (), **given: Any) -> Market:
    """Bars of (open, high, low, close) of one market; `last` ones end a session."""
    n = len(bars)
    ends = np.isin(np.arange(n), last)
    columns = dict(zip(("open", "high", "low", "close"), np.array(bars, np.int32).T, strict=True))
    columns |= dict(
        high_first=np.ones(n, bool), atr64=np.full(n, 4 * 64, np.int32), minute=np.arange(n, dtype=np.int32)
    )
    columns |= dict(may_enter=~ends, last=ends, session=(np.cumsum(ends) - ends).astype(np.int32))
    columns |= dict(final=np.zeros(n, bool), features=np.arange(n, dtype=np.float32)[:, None], start=np.int32([0]))
    numbers = dict(length=n, n_start=1, tick_cents=1000, slippage=1, commission_cents=50)
    columns |= {name: np.int32(number) for name, number in numbers.items()}
    columns |= {name: np.asarray(value, np.asarray(columns[name]).dtype) for name, value in given.items()}
    columns["reward_scale"] = np.float32(1 / (8 * columns["tick_cents"]))
    return Market(**{name: np.asarray(column)[None] for name, column in columns.items()})


def play(
    of: Market, actions: list[int], settings: Settings = USUAL, phase: int = 1, jit: bool = False, **rules
) -> Seen:
    """An account that is flat after bar 0: what it is after each bar, one operation at a time or compiled."""
    env = Trading(TradingParams(phase, window=1, n_features=1, rules=Rules(**rules)))
    market, settings = jax.tree.map(jnp.asarray, (of, settings))
    step = jax.jit(env.step) if jit else env.step
    state: State = env.reset(market, settings, *jnp.zeros((2, 1), jnp.int32))
    shown = [_row(env, market, settings, state, None)]
    for action in actions:
        state, outcome = step(market, settings, state, jnp.full(1, action, jnp.int32))
        shown.append(_row(env, market, settings, state, outcome))
    return shown


def _row(env: Trading, market: Market, settings: Settings, state: State, outcome: Outcome | None) -> dict[str, Any]:
    row = state._asdict() | (outcome._asdict() if outcome else {}) | {"equity": env.equity(market, state)}
    return {name: np.asarray(value)[0].item() for name, value in row.items()} | {
        "mask": np.asarray(env.mask(market, settings, state))[0].tolist()
    }


def check(row: dict[str, Any], **expected: Any) -> None:
    assert {name: row[name] for name in expected} == expected


# Compiled, each case is a program of its own; that compiled walks are equal is proved in test_trading_equal.py.
@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.slow)], ids=["plain", "compiled"])
def jit(request: pytest.FixtureRequest) -> bool:
    return request.param


# The floor. With a drawdown of $50 it is at 4 995 000 cents; bought at 101 the balance is 4 999 950, and the equity
# 4 994 950 at 96 is the first below the floor: side (level - entry) = (-4951) // 1000 = -5.

FIFTY = WIDE._replace(drawdown_cents=5000)
BUST = dict(reason=Reason.BUST, position=0, terminated=True, truncated=False, losses=1)


def test_a_long_is_closed_at_the_floor(jit):
    """At 96, a tick worse: 6 ticks and two commissions lost, although the close is 4 ticks higher."""
    rows = play(market([QUIET, QUIET, (100, 101, 96, 100), QUIET]), [BUY, HOLD], FIFTY, jit=jit)
    check(rows[1], position=1, entry=101, reason=Reason.NONE)
    check(rows[2], **BUST, result=-6100, balance=4_993_900, slippages=2000, commissions=100, equity=4_993_900)


def test_a_tick_above_the_floor_nothing_happens(jit):
    rows = play(market([QUIET, QUIET, (100, 101, 97, 97), QUIET]), [BUY, HOLD], FIFTY, jit=jit)
    check(rows[2], position=1, reason=Reason.NONE, terminated=False, equity=4_995_950)


def test_a_short_is_closed_at_the_floor(jit):
    """Sold at 99: the level is 104, the fill 105."""
    rows = play(market([QUIET, QUIET, (100, 104, 99, 100), QUIET]), [SELL, HOLD], FIFTY, jit=jit)
    check(rows[1], position=-1, entry=99)
    check(rows[2], **BUST, result=-6100, balance=4_993_900)
    rows = play(market([QUIET, QUIET, (100, 103, 99, 100), QUIET]), [SELL, HOLD], FIFTY, jit=jit)
    check(rows[2], position=-1, reason=Reason.NONE)


@pytest.mark.parametrize(("action", "bar"), [(BUY, (90, 95, 89, 94)), (SELL, (110, 111, 105, 106))])
def test_a_gap_beyond_the_floor_fills_at_the_open(action, bar, jit):
    """11 ticks away from the entry, 12 with slippage."""
    rows = play(market([QUIET, QUIET, bar, QUIET]), [action, HOLD], FIFTY, jit=jit)
    check(rows[2], **BUST, result=-12_100)
    rows = play(market([QUIET, QUIET, bar, QUIET]), [action, HOLD], FIFTY, jit=jit, gaps="ignored")
    check(rows[2], **BUST, result=-6100)


def test_the_nearer_of_stop_and_floor_guards_and_the_floor_if_they_are_equal():
    """The stop is at 97; so is the floor level from (49 - 3050) // 1000 to (49 - 4049) // 1000, which are -4 ticks."""
    falls = market([QUIET, QUIET, (100, 101, 95, 100), QUIET])
    at = lambda drawdown, of=falls: play(of, [BUY, HOLD], USUAL._replace(drawdown_cents=drawdown))[2]
    check(at(3049), **BUST, result=-4100)
    check(at(3050), **BUST, result=-5100)
    check(at(4049), **BUST, result=-5100)
    check(at(4050), reason=Reason.STOP, result=-4100, terminated=True)  # the second commission breaks the floor
    check(at(4100), reason=Reason.STOP, result=-4100, terminated=False)
    gap = market([QUIET, QUIET, (90, 95, 89, 94), QUIET])
    check(at(4100, gap), reason=Reason.STOP, result=-11_100, terminated=True)  # by the stop, at the open; and bust


@pytest.mark.parametrize(
    ("intrabar", "high_first", "first"),
    [
        ("path", False, "floor"),
        ("path", True, "target"),
        ("pessimistic", True, "floor"),
        ("optimistic", False, "target"),
        ("nearest", True, "floor"),
    ],
)
def test_floor_and_target_in_one_bar(intrabar, high_first, first, jit):
    """The target is at 113, 12 ticks in profit; the bar's open is in the middle of its range."""
    wild = market([QUIET, QUIET, (105, 114, 96, 105), QUIET], high_first=[high_first] * 4)
    settings = USUAL._replace(drawdown_cents=3949)  # a floor level of 97, where the stop is
    row = play(wild, [BUY, HOLD], settings, jit=jit, intrabar=intrabar)[2]
    check(row, **BUST | {"result": -5100} if first == "floor" else {"reason": Reason.TARGET, "result": 11_900})


def test_a_short_breaches_the_floor_on_the_way_to_its_target():
    wild = [QUIET, QUIET, (95, 104, 86, 95), QUIET]
    settings = USUAL._replace(drawdown_cents=3949)
    at = lambda high_first: play(market(wild, high_first=[high_first] * 4), [SELL, HOLD], settings, intrabar="path")[2]
    check(at(True), **BUST, result=-5100)
    check(at(False), reason=Reason.TARGET, result=11_900)


def test_the_floor_may_be_above_the_entry():
    """A close of 114 raises it to 5 007 950; (8000 - 1) // 1000 = 7: from the entry at 101 to 108, a tick worse."""
    rises = [QUIET, QUIET, (104, 114, 104, 114), (113, 113, 108, 112), QUIET]
    row = play(market(rises), [BUY, HOLD, HOLD], FIFTY._replace(lock_cents=10**8))
    check(row[2], high_water=5_012_950, position=1)
    check(row[3], reason=Reason.BUST, result=5900, balance=5_005_900, wins=1, terminated=True)


def test_the_floor_stops_rising_at_the_lock():
    """$1 above the first balance: (5_000_100 - 4_999_950 - 1) // 1000 = 0, the entry."""
    rises = [QUIET, QUIET, (104, 114, 104, 114), (113, 113, 102, 112), (110, 112, 101, 110), QUIET]
    row = play(market(rises), [BUY, HOLD, HOLD, HOLD], FIFTY._replace(lock_cents=100))
    check(row[3], position=1)
    check(row[4], reason=Reason.BUST, result=-1100, terminated=True)


def test_an_entry_whose_costs_break_the_floor_is_out_at_the_same_open():
    """A drawdown of 40 cents is less than the commission: bought at 101, out at the open, a tick worse."""
    rows = play(market([QUIET, QUIET, QUIET]), [BUY], WIDE._replace(drawdown_cents=40))
    check(rows[1], **BUST, result=-2100, trades=1)


def test_a_flat_account_below_the_floor_is_bust():
    """Its limit shrank in the course of training."""
    env, settings = Trading(TradingParams(window=1, n_features=1)), jax.tree.map(jnp.asarray, USUAL)
    bars = jax.tree.map(jnp.asarray, market([QUIET, QUIET, QUIET]))
    state = env.reset(bars, settings, *jnp.zeros((2, 1), jnp.int32))
    for high_water, bust in ((6_500_001, True), (6_500_000, False)):
        _, outcome = env.step(bars, settings, state._replace(high_water=jnp.int32([high_water])), jnp.int32([HOLD]))
        assert outcome.terminated.item() is bust and outcome.reason.item() == Reason.NONE


@pytest.mark.parametrize(("margin", "bust"), [(2951, False), (951, True)])
def test_a_liquidated_account_may_be_bust_by_it(margin, bust):
    """At a close of 99 the equity is 2950 above the floor, and 1900 are left of it; at 97 it is 950: a tick is more."""
    bars = [QUIET, QUIET, (100, 101, 97, 97 if bust else 99), QUIET]
    row = play(market(bars), [BUY, HOLD], FIFTY._replace(liquidation_cents=margin))[2]
    check(row, reason=Reason.LIQUIDATED, result=-5100 if bust else -3100, terminated=bust)


@pytest.mark.parametrize("drawdown", ["worst_in_bar", "close"])
def test_the_other_rules_close_at_the_close(drawdown):
    """At the close of 95, a tick worse; a bar that recovers from 90 to 100 is a bust by its worst equity alone."""
    falls = play(market([QUIET, QUIET, (100, 101, 90, 95), QUIET]), [BUY, HOLD], FIFTY, drawdown=drawdown)[2]
    check(falls, **BUST, result=-7100)
    recovers = play(market([QUIET, QUIET, (100, 101, 90, 100), QUIET]), [BUY, HOLD], FIFTY, drawdown=drawdown)[2]
    check(recovers, **BUST | {"result": -2100} if drawdown == "worst_in_bar" else {"reason": Reason.NONE})


def test_a_large_limit_has_room_in_32_bits(jit):
    """2^29 cents: the level is 536 871 ticks away, and 3/4 of the limit is told from more of it."""
    settings = WIDE._replace(drawdown_cents=2**29, initial_cents=10**9)
    rows = play(market([QUIET, QUIET, (100, 101, 60, 100), QUIET]), [BUY, HOLD], settings, phase=2, jit=jit)
    check(rows[2], reason=Reason.STOP, result=-40_100, terminated=False)
    env, bars = Trading(TradingParams(2, window=1, n_features=1)), jax.tree.map(jnp.asarray, market([QUIET, QUIET]))
    state = env.reset(bars, settings, *jnp.zeros((2, 1), jnp.int32))
    for lost, legal in ((3 * 2**27 - 1, True), (3 * 2**27, False), (2**29, False)):
        mask = env.mask(bars, settings, state._replace(balance=state.balance - lost))
        assert mask[0, BUY].item() is legal


# Leaving.


def test_close_leaves_at_the_open(jit):
    """Bought at 101, left at the open of 104, a tick worse: 2 ticks and two commissions; the bar's low is no matter."""
    bars = market([QUIET, QUIET, (104, 120, 90, 110), QUIET])
    rows = play(bars, [BUY, CLOSE], phase=3, jit=jit)
    assert rows[0]["mask"] == [True, True, True, False, False, False, False]
    assert rows[1]["mask"][CLOSE]
    check(rows[2], reason=Reason.CLOSED, result=1900, balance=5_001_900, slippages=2000, position=0, contracts=0)
    check(rows[2], terminated=False, truncated=False, wins=1, illegal=0, high_water=5_001_900, stop=0, trailing=0)
    short = play(bars, [SELL, CLOSE], phase=3, jit=jit)[2]
    check(short, reason=Reason.CLOSED, result=-6100)


def test_close_comes_before_a_gap_the_session_end_and_the_floor():
    bars = market([QUIET, QUIET, (90, 95, 89, 94), QUIET], last=(2,))
    row = play(bars, [BUY, CLOSE], FIFTY, phase=3)[2]
    check(row, reason=Reason.CLOSED, result=-12_100, terminated=True)  # balance 4 987 900, below the floor
    row = play(bars, [BUY, CLOSE], phase=3)[2]
    check(row, reason=Reason.CLOSED, result=-12_100, terminated=False, truncated=True)


@pytest.mark.parametrize("drawdown", ["worst_in_bar", "close"])
def test_a_closed_position_is_judged_by_its_balance(drawdown):
    row = play(market([QUIET, QUIET, (100, 101, 80, 85), QUIET]), [BUY, CLOSE], FIFTY, phase=3, drawdown=drawdown)[2]
    check(row, reason=Reason.CLOSED, result=-2100, terminated=False)


def test_close_when_flat_is_counted_and_does_nothing():
    rows = play(market([QUIET, QUIET, QUIET]), [CLOSE], phase=3)
    check(rows[1], illegal=1, position=0, trades=0, balance=5_000_000)
    assert not play(market([QUIET, QUIET, QUIET]), [], phase=3)[0]["mask"][CLOSE]


def test_a_trailing_position_can_be_left():
    rises = market([QUIET, (100, 105, 99, 104), (104, 106, 103, 105), QUIET])
    row = play(rises, [BUY, TRAIL, CLOSE], phase=3)
    check(row[2], trailing=1, stop=100)
    check(row[3], reason=Reason.CLOSED, result=-2100, trailing=0)  # at the open of 100, a tick worse


# Sizes and costs.


@pytest.mark.parametrize(
    ("risk", "size"), [(0, 5), (3999, 1), (4000, 1), (7999, 1), (8000, 2), (19_999, 4), (20_000, 5), (10**8, 5)]
)
def test_the_size_is_what_the_risk_allows(risk, size):
    """A stop 4 ticks away loses $40 per contract."""
    settings = USUAL._replace(contracts=5, risk_cents=risk)
    rows = play(market([QUIET, QUIET, QUIET, QUIET]), [BUY], settings)
    check(rows[1], contracts=size, commissions=50 * size, slippages=1000 * size, balance=5_000_000 - 50 * size)
    check(rows[1], equity=5_000_000 - 1050 * size)


def test_the_floor_of_a_large_position_is_near(jit):
    """2 contracts: balance 4 999 900, (-4901) // 2000 = -3, level 98, fill 97: 4 ticks of two contracts."""
    settings = FIFTY._replace(contracts=9, risk_cents=80_000)  # the stop is 40 ticks away
    row = play(market([QUIET, QUIET, (100, 101, 98, 100), QUIET]), [BUY, HOLD], settings, jit=jit)
    check(row[1], contracts=2, position=1)
    check(row[2], **BUST, result=-8200)


def test_a_forced_position_has_the_size_of_its_risk(jit):
    """In the middle of its range of profits, 0 ticks; then 4 ticks in profit, the most that an ATR allows."""
    env = Trading(TradingParams(window=1, n_features=1))
    settings = USUAL._replace(contracts=5, risk_cents=12_500, forced=1024)
    given = jax.tree.map(jnp.asarray, (market([QUIET, QUIET, QUIET]), settings))
    begin = jax.jit(env.begin) if jit else env.begin
    state = begin(*given, jnp.float32([[0, 0, 0, 0, 0.5], [0, 0, 0, 0.7, 0.99]]))
    assert state.contracts.tolist() == [3, 3] and state.position.tolist() == [1, -1]
    assert state.entry.tolist() == [100, 104] and state.balance.tolist() == [5_000_000, 5_000_000 - 12_000]
    assert env.equity(given[0], state).tolist() == [5_000_000, 5_000_000]
    assert state.trades.tolist() == [1, 1] and state.commissions.tolist() == [0, 0]


@pytest.mark.parametrize(("own", "ticks"), [(-1, 1), (0, 0), (3, 3)])
def test_slippage_of_the_settings_overrides_the_market(own, ticks, jit):
    """On entry, at the session's end, when leaving and at the floor."""
    settings = WIDE._replace(slippage=own)
    bars = market([QUIET, QUIET, (100, 101, 99, 100), QUIET], last=(2,))
    ends = play(bars, [BUY, HOLD], settings, jit=jit)
    check(ends[1], entry=100 + ticks, slippages=1000 * ticks)
    check(ends[2], reason=Reason.SESSION_END, result=-2000 * ticks - 100, slippages=2000 * ticks)
    check(play(bars, [BUY, CLOSE], settings, phase=3)[2], reason=Reason.CLOSED, result=-2000 * ticks - 100)
    falls = market([QUIET, QUIET, (100, 101, 80, 100), QUIET])
    check(play(falls, [BUY, HOLD], settings._replace(drawdown_cents=5000))[2], **BUST, result=-5100 - 1000 * ticks)


def test_one_of_reward_is_the_worth_of_eight_ticks():
    """MES: a tick of $1.25. Bought at 101 it is worth 104 at the close: 3 ticks less a commission of 50 cents."""
    mes = contract("MES")
    assert mes.tick_cents == 125
    bars = [QUIET, (100, 105, 99, 104), QUIET]
    row = play(market(bars, tick_cents=mes.tick_cents), [BUY])[1]
    assert row["reward"] == np.float32(325) * np.float32(1 / 1000)
    row = play(market(bars, tick_cents=1250), [BUY])[1]
    assert row["reward"] == np.float32(3700) * np.float32(1e-4)


def test_a_large_average_true_range_has_room_in_32_bits():
    """2^20 ticks of ATR and a stop of 100 of them: 64^2 times that many has 39 bits."""
    settings = USUAL._replace(stop_64=6400, target_ratio=1)
    rows = play(market([QUIET, QUIET, QUIET], atr64=[64 * 2**20] * 3, tick_cents=1), [BUY], settings)
    check(rows[1], entry=101, stop=101 - 100 * 2**20, target=101 + 100 * 2**20)


# Days.


DAYS = [QUIET] * 9


@pytest.mark.parametrize(("days", "ends"), [(1, 2), (2, 4), (3, 6), (9, 8)])
def test_an_account_lives_days_sessions(days, ends, jit):
    """Sessions end at bars 2, 4 and 6; bar 8 is the end of the data."""
    rows = play(market(DAYS, last=(2, 4, 6)), [HOLD] * ends, USUAL._replace(days=days), jit=jit)
    assert [row["truncated"] for row in rows[1:]] == [False] * (ends - 1) + [True]


def test_an_account_that_begins_later_lives_as_many_sessions():
    env, settings = Trading(TradingParams(window=1, n_features=1)), USUAL._replace(days=2)
    bars = jax.tree.map(jnp.asarray, market(DAYS, last=(2, 4, 6)))
    state, ends = env.reset(bars, settings, jnp.zeros(1, jnp.int32), jnp.int32([3])), []
    for _ in range(3):
        state, outcome = env.step(bars, settings, state, jnp.int32([HOLD]))
        ends.append(outcome.truncated.item())
    assert ends == [False, False, True]


def test_balance_and_floor_are_carried_into_the_next_session_and_positions_are_not(jit):
    """Day 1 is worth 3 ticks, 101 to 104; on day 2 slippage takes both that 101 to 102 would have brought."""
    bars = [QUIET, QUIET, (100, 106, 100, 105), QUIET, QUIET, (100, 102, 98, 102), QUIET]
    rows = play(market(bars, last=(2, 5)), [BUY, HOLD, BUY, HOLD, BUY], WIDE._replace(days=2), jit=jit)
    check(rows[2], reason=Reason.SESSION_END, result=2900, balance=5_002_900, truncated=False, position=0)
    check(rows[2], high_water=5_002_900)
    check(rows[3], illegal=1, position=0)  # nobody may enter after the last bar of a session
    check(rows[5], reason=Reason.SESSION_END, result=-100, balance=5_002_800, truncated=True, high_water=5_002_900)


def test_accounts_end_with_a_session_that_is_final():
    final = [False, False, False, False, True, False, False, False, False]
    rows = play(market(DAYS, last=(2, 4, 6), final=final), [HOLD] * 4, USUAL._replace(days=9))
    assert [row["truncated"] for row in rows[1:]] == [False, False, False, True]
    whole = [False, False, False, True, True, False, False, False, False]  # of the session, not of its last bar alone
    rows = play(market(DAYS, last=(2, 4, 6), final=whole), [HOLD] * 4, USUAL._replace(days=9))
    assert [row["truncated"] for row in rows[1:]] == [False, False, False, True]


# Types.


@pytest.mark.parametrize("phase", [1, 2, 3])
@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize("drawdown", ["at_floor", "worst_in_bar"])
def test_integers_have_32_bits_where_jax_has_64(phase, arrays, drawdown, x64):
    env = Trading(TradingParams(phase, window=1, n_features=1, rules=Rules(drawdown=drawdown)))
    settings = Settings(forced=1024, risk_cents=9000, contracts=3, slippage=2, days=2, liquidation_cents=10)
    if arrays:
        settings = Settings(
            *(jnp.float32(v) if name == "progress" else jnp.int32([v, v]) for name, v in settings._asdict().items())
        )
    bars = jax.tree.map(jnp.asarray, market([QUIET, QUIET, QUIET]))
    for start in (
        env.begin(bars, settings, jnp.zeros((2, 5), jnp.float32)),
        env.reset(bars, settings, *jnp.zeros((2, 2), jnp.int32)),
    ):
        state, outcome = env.step(bars, settings, start, jnp.int32([BUY, Action.SELL]))
        assert {field.dtype for field in (*start, *state, outcome.reason, outcome.result)} == {np.dtype(np.int32)}
        assert env.size(bars, settings, state).dtype == np.int32
        assert outcome.reward.dtype == env.observe(bars, settings, state).dtype == np.float32
        assert outcome.terminated.dtype == outcome.truncated.dtype == env.mask(bars, settings, state).dtype == np.bool_


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_features_are_seen_in_float32_however_they_are_kept(kind, jit):
    n, window = 300, 5
    stored = np.random.default_rng(0).normal(size=(n, 3)).astype(kind)
    bars = jax.tree.map(jnp.asarray, market([QUIET] * n)._replace(features=stored[None]))
    env = Trading(TradingParams(window=window, n_features=3))
    state = env.reset(bars, USUAL, jnp.zeros(2, jnp.int32), jnp.int32([7, 250]))
    observe = jax.jit(env.observe) if jit else env.observe
    seen = np.asarray(observe(bars, USUAL, state))
    assert seen.dtype == np.float32
    expected = [stored[t - window + 1 : t + 1].astype(np.float32).ravel() for t in (7, 250)]
    np.testing.assert_array_equal(seen[:, : 3 * window], expected)


@pytest.mark.parametrize("kind", [jnp.float16, jnp.bfloat16])
def test_features_are_cast_after_the_slice(kind):
    """No array of all features in float32 exists, neither in what is traced nor in what is compiled."""
    n, window = 50_000, 4
    bars = jax.tree.map(jnp.asarray, market([QUIET] * 20))._replace(features=jax.ShapeDtypeStruct((1, n, 8), kind))
    env = Trading(TradingParams(window=window, n_features=8))
    state = env.reset(bars, USUAL, jnp.zeros(2, jnp.int32), jnp.int32([7, 9]))
    traced = jax.jit(env.observe).trace(bars, USUAL, state)
    whole = f"16[1,{8 * n}]"
    assert whole in str(traced.jaxpr) and whole.replace("16", "32") not in str(traced.jaxpr)
    assert traced.lower().compile().memory_analysis().temp_size_in_bytes < 8 * n


# Speed.


def test_a_bar_is_decided_once_for_all_fields(monkeypatch):
    """Else a loop that steps and begins anew has more than twice the instructions: each field decides by itself."""
    env = Trading(TradingParams(window=1, n_features=1))
    given = jax.tree.map(jnp.asarray, (market([QUIET] * 9), USUAL))
    action, uniform = jnp.zeros(8, jnp.int32), jnp.zeros((8, 5))

    def loop(market: Market, settings: Settings, action: Any, uniform: Any) -> State:
        def step(_: Any, state: State) -> State:
            after, outcome = env.step(market, settings, state, action)
            over = outcome.terminated | outcome.truncated
            return jax.tree.map(partial(jnp.where, over), env.begin(market, settings, uniform), after)

        return jax.lax.fori_loop(0, 9, step, env.begin(market, settings, uniform))

    def instructions() -> int:
        return jax.jit(lambda *of: loop(*of)).lower(*given, action, uniform).compile().as_text().count(" = ")

    once = instructions()
    monkeypatch.setattr(trading_jax, "_once", lambda decided: decided)
    assert 1.8 * once < instructions()
