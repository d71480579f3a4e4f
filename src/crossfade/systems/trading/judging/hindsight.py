"""What could have been earned at most, by one who knew all bars in advance: the measure of what there was to be had.

Of a trade with a fixed stop and target nothing is left open once it is entered, so a session's best is a short
recursion over its bars: after bar t one is flat and waits, or enters on the better side, and is flat again where that
trade ends. In phases 2 and 3, where a policy may also move its stop or leave, it is what can be had without.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ....envs.trading.market import State
from ....envs.trading.params import Action, Reason
from ....envs.trading.trading_numpy import Trading
from .stage import Stage

NO_FLOOR = np.array(2**29, np.int32)
"""Cents below the highest equity that no session loses; the mask of phases 2 and 3 takes it three times, in 32 bits."""


class Entries(NamedTuple):
    """Every bar after which one could enter; of the trade on one side, where it ends and what it brings."""

    session: Int[np.ndarray, " entries"]
    row: Int[np.ndarray, " entries"]  # bars since the session began
    end: Int[np.ndarray, " entries"]  # row at which it is closed
    result: Int[np.ndarray, " entries"]  # cents


def best(stage: Stage) -> Float[np.ndarray, " sessions"]:
    """Dollars of each session."""
    sides = [_entries(stage, action) for action in (Action.BUY, Action.SELL)]
    value = np.zeros((len(stage.dates), stage.n_bars + 1), np.int64)  # cents still to be had by one who is flat
    for row in range(stage.n_bars - 1, -1, -1):
        value[:, row] = value[:, row + 1]
        for side in sides:
            here = side.row == row
            session = side.session[here]
            entered = side.result[here] + value[session, side.end[here]]
            value[session, row] = np.maximum(value[session, row], entered)
    return value[:, 0] / 100


def _entries(stage: Stage, action: int) -> Entries:
    """Accounts that enter after each bar and then hold, each until it is flat again."""
    (m, t), market = stage.at, stage.market
    bars = np.minimum(t[:, None] + np.arange(stage.n_bars), _last_bar(stage)[:, None])
    at = m[:, None], bars
    session, row = np.nonzero(market.may_enter[at] & ~market.last[at])
    env, settings = Trading(stage.config.params), stage.settings._replace(drawdown_cents=NO_FLOOR)
    state = env.reset(market, settings, m[session], bars[session, row].astype(np.int32))
    end, result, open_ = np.zeros_like(row), np.zeros_like(row), np.arange(len(row))
    order = np.full(len(row), action, np.int32)
    while len(open_):
        state, outcome = env.step(market, settings, state, order)
        closed = outcome.reason != Reason.NONE
        end[open_[closed]] = state.t[closed] - t[session[open_[closed]]]
        result[open_[closed]] = outcome.result[closed]
        open_, state = open_[~closed], State(*(field[~closed] for field in state))
        order = np.full(len(open_), Action.HOLD, np.int32)
    return Entries(session, row, end, result)


def _last_bar(stage: Stage) -> Int[np.ndarray, " sessions"]:
    (m, t), last = stage.at, stage.market.last
    return np.array([bar + np.argmax(last[of, bar:]) for of, bar in zip(m, t, strict=True)])
