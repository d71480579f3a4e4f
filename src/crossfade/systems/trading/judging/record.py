"""What accounts did, bar by bar: the one thing that every figure of an evaluation is computed from.

`trade` here steps accounts in NumPy; the twin, which steps every checkpoint in one compiled program, is record_jax.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32

from ....envs.trading.market import Market, Settings, State
from ....envs.trading.params import Action
from ....envs.trading.trading_numpy import Trading

Ints = Int32[np.ndarray, " sessions"]
Decide = Callable[[int, State, np.ndarray], np.ndarray]
"""(row, state, mask) -> an action of each account; row 0 is the decision after the bar at which accounts began."""


class Record(NamedTuple):
    """Accounts of their own, one per session, side by side. Arrays are NumPy's or JAX's; JAX's have checkpoints first.

    Row r of the first nine is bar t + 1 + r of an account that began flat after bar t: its action is the one decided
    before that bar, all else is as the bar left it. Rows after an account's end repeat its equity; else they are 0.
    """

    equity: Any  # (bars, sessions) int32 cents at the close
    position: Any  # (bars, sessions) int32: -1, 0, 1, held at the close
    contracts: Any  # (bars, sessions) int32: of the position held at the close, or of the one closed in this bar
    action: Any  # (bars, sessions) int32, as it was decided
    reason: Any  # (bars, sessions) int32: why a position was closed in this bar, NONE if none was
    result: Any  # (bars, sessions) int32: cents that the closed position brought, both commissions included
    cost: Any  # (bars, sessions) int32: cents of commission and slippage paid in this bar
    could_enter: Any  # (bars, sessions) bool: BUY was legal when the action was decided
    running: Any  # (bars, sessions) bool: the account had not ended before this bar
    bust: Any  # (sessions,) bool: it ended by falling through the floor
    state: State  # (sessions,) int32 each: the account when it ended


def longest(market: Market, m: Ints, t: Ints) -> int:
    """Bars that the longest of these accounts can live: from t to the last bar of its session, or of the data."""
    ends = [
        np.flatnonzero(last[:n] | (np.arange(n) == n - 1)) for last, n in zip(market.last, market.length, strict=True)
    ]
    return max(int(ends[i][np.searchsorted(ends[i], bar, side="right")] - bar) for i, bar in zip(m, t, strict=True))


def trade(env: Trading, market: Market, settings: Settings, m: Ints, t: Ints, decide: Decide, n_bars: int) -> Record:
    """Accounts that begin flat after bar `t` of market `m`, each stepped to its end, for at most `n_bars` bars."""
    state, n = env.reset(market, settings, m, t), len(t)
    ints = lambda: np.zeros((n_bars, n), np.int32)
    equity, position, contracts, action, reason, result, cost = (ints() for _ in range(7))
    could_enter, running = np.zeros((n_bars, n), bool), np.zeros((n_bars, n), bool)
    bust, alive = np.zeros(n, bool), np.ones(n, bool)
    for row in range(n_bars):
        if alive.any():
            mask, here = env.mask(market, settings, state), np.flatnonzero(alive)
            action[row, here] = decide(row, state, mask)[here]
            before = State(*(field[here] for field in state))
            after, outcome = env.step(market, settings, before, action[row, here])
            could_enter[row, here], running[row, here] = mask[here, Action.BUY], True
            position[row, here], reason[row, here], result[row, here] = after.position, outcome.reason, outcome.result
            entered, size = after.trades > before.trades, env.size(market, settings, before)
            contracts[row, here] = np.where(entered, size, before.contracts)
            cost[row, here] = after.commissions + after.slippages - before.commissions - before.slippages
            state = State(*(field.copy() for field in state))
            for field, new in zip(state, after, strict=True):
                field[here] = new
            bust[here] = outcome.terminated
            alive[here] = ~(outcome.terminated | outcome.truncated)
        equity[row] = env.equity(market, state)
    return Record(equity, position, contracts, action, reason, result, cost, could_enter, running, bust, state)
