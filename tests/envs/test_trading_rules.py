"""The rules of trading, scenario by scenario, in Python, NumPy and JAX: trading_scenarios.py has the numbers."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from trading_cases import random_market, random_settings, written_market
from trading_scenarios import BUY, ENTRIES, EXITS, HOLD, QUIET, RISES, SESSIONS, Scenario
from trading_scenarios_accounts import ACCOUNTS, BEGINNINGS, MANAGEMENT
from trading_scenarios_floor import FLOOR
from trading_scenarios_orders import DAYS, LEAVING, SCALES, SIZES, SLIPPAGES

from crossfade.envs.trading import trading_jax, trading_numpy
from crossfade.envs.trading.market import Settings, State
from crossfade.envs.trading.params import Action, TradingParams
from crossfade.envs.trading.scalar import ScalarTrading

SCENARIOS = [*ENTRIES, *EXITS, *SESSIONS, *ACCOUNTS, *MANAGEMENT, *BEGINNINGS]
SCENARIOS += [*FLOOR, *LEAVING, *SIZES, *SLIPPAGES, *DAYS, *SCALES]
LETTERS = np.array(list("HBSETXC"))
SETTINGS = Settings(stop_64=64)


def play_scalar(case: Scenario, settings: Settings) -> list[dict[str, Any]]:
    account = ScalarTrading(case.params, written_market(case.bars, **case.market), settings)
    began = account.begin(np.array(case.begins, np.float32)) if case.begins else account.reset(0, 0)
    shown = [began._asdict() | {"mask": account.mask(), "seen": account.observation()}]
    for action in case.actions:
        outcome = account.step(action)
        now = {"mask": account.mask(), "seen": account.observation()}
        shown.append(account.state._asdict() | outcome._asdict() | now)
    return shown


def play_numpy(case: Scenario, settings: Settings) -> list[dict[str, Any]]:
    env, zero = trading_numpy.Trading(case.params), np.zeros(1, np.int32)
    return _play(env, case, settings, env.step, lambda *given: (env.mask(*given), env.observe(*given)), zero)


def play_jax(case: Scenario, settings: Settings) -> list[dict[str, Any]]:
    """Compiled for the sound rules, which most cases share; one operation at a time for the others."""
    env = trading_jax.Trading(case.params)
    step, show = (_compiled_step, _compiled_show) if not case.rules else (_step, _show)
    settings = Settings(*map(jnp.asarray, settings))
    return _play(
        env, case, settings, lambda *given: step(env, *given), lambda *given: show(env, *given), jnp.zeros(1, jnp.int32)
    )


def _step(env: Any, *given: Any) -> Any:
    return env.step(*given)


def _show(env: Any, *given: Any) -> Any:
    return env.mask(*given), env.observe(*given)


_compiled_step, _compiled_show = jax.jit(_step, static_argnums=0), jax.jit(_show, static_argnums=0)


def _play(env: Any, case: Scenario, settings: Settings, step: Any, show: Any, zero: Any) -> list[dict[str, Any]]:
    """The account, what it was told and what it saw after each bar."""
    market = written_market(case.bars, **case.market)
    if not isinstance(zero, np.ndarray):
        market = jax.tree.map(jnp.asarray, market)
    uniform = (np if isinstance(zero, np.ndarray) else jnp).asarray([case.begins], np.float32)
    state: State = env.begin(market, settings, uniform) if case.begins else env.reset(market, settings, zero, zero)
    shown = [state._asdict() | dict(zip(("mask", "seen"), show(market, settings, state), strict=True))]
    for action in case.actions:
        state, outcome = step(market, settings, state, zero + action)
        now = dict(zip(("mask", "seen"), show(market, settings, state), strict=True))
        shown.append(state._asdict() | outcome._asdict() | now)
    return [{name: np.asarray(value)[0] for name, value in row.items()} for row in shown]


def check(case: Scenario, shown: list[dict[str, Any]]) -> None:
    for bar, expected in case.expect.items():
        for name, value in expected.items():
            if name == "mask":
                assert "".join(LETTERS[: case.params.n_actions][shown[bar]["mask"]]) == value, (bar, name)
            elif name == "cents":
                worth = 8 * case.market.get("tick_cents", 1000)
                assert round(float(shown[bar]["reward"]) * worth) == value, (bar, name)
            elif name in ("seen", "reward"):
                np.testing.assert_allclose(shown[bar][name], value, rtol=1e-6, err_msg=f"bar {bar}")
            else:
                assert shown[bar][name] == value, (bar, name, shown[bar][name], value)


@pytest.mark.parametrize("play", [play_scalar, play_numpy, play_jax])
@pytest.mark.parametrize("case", SCENARIOS, ids=lambda case: case.name)
def test_rule(case, play):
    check(case, play(case, SETTINGS._replace(**case.settings)))


def test_no_scenario_is_told_twice_and_there_are_many():
    assert len({case.name for case in SCENARIOS}) == len(SCENARIOS) >= 40


def test_leaving_is_no_action_before_phase_3():
    case = next(case for case in SCENARIOS if case.name == "phase 2 cannot leave")
    leaves = replace(case, actions=[BUY, Action.CLOSE])
    for play in (play_scalar, play_numpy):
        with pytest.raises(IndexError):
            play(leaves, SETTINGS)


def test_a_table_with_a_wrong_number_fails():
    case = EXITS[0]
    wrong = replace(case, expect={2: case.expect[2] | {"balance": 4_995_901}})
    with pytest.raises(AssertionError):
        check(wrong, play_scalar(case, SETTINGS))


def test_rewards_add_up_to_the_result():
    case = Scenario(
        "",
        [QUIET, RISES, (104, 109, 103, 108), (108, 114, 107, 110), QUIET],
        [BUY, HOLD, HOLD],
        {},
    )
    shown = play_numpy(case, SETTINGS)
    assert round(sum(float(row["reward"]) for row in shown[1:]) * 8000) == shown[-1]["result"] == 11_900


def test_a_forced_beginning_is_neither_gift_nor_debt_and_touches_no_level():
    n, rng = 4000, np.random.default_rng(0)
    market, settings = random_market(), random_settings(n)._replace(forced=300, forced_64=200)
    env = trading_numpy.Trading(TradingParams(window=3))
    state = env.begin(market, settings, rng.random((n, 5), dtype=np.float32))
    assert (env.equity(market, state) == settings.initial_cents).all()
    held, close = state.position != 0, market.close[state.market, state.t]
    for level, way in ((state.stop, 1), (state.target, -1)):
        assert (way * state.position * (close - level) > 0)[held].all()
    share, long = held.mean(), (state.position[held] > 0).mean()
    assert abs(share - 300 / 1024) < 4 * np.sqrt(0.25 / n) and abs(long - 0.5) < 4 * np.sqrt(0.25 / held.sum())
