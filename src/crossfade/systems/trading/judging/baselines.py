"""Traders to be beaten, in the same environment and at the same costs.

Those who see nothing (`random`, `long`, `short`) enter as often as the policy does, at random moments: on a random
side, always long, always short. Few days may all fall, and a policy that only sells then looks as if it could read
them: it must beat all three. `hold` is long from the first possible moment to the end of the session, stop and target
out of reach. `breakout` enters once, when a close leaves the range of the first half hour, on the side of the break.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int32

from ....envs.trading.market import Market, Settings, State
from ....envs.trading.params import Action
from ....envs.trading.sessions import LEAST, OPEN
from ....random import random_numpy as random
from .record import Decide

Ints = Int32[np.ndarray, " sessions"]
BLIND = {"random": 0.5, "long": 1.0, "short": 0.0}  # traders who see nothing, by their probability of buying
REPEATS = 10  # of every session by each of them
STREAM = 0x7261  # of their draws, beside those of the updates
RANGE = 30  # minutes from the open that a breakout leaves


def blind(seed: int, rate: float, sessions: int) -> Decide:
    """All of `BLIND`, each `REPEATS` times: enters with probability `rate` whenever that is legal, and leaves exits to
    stop and target."""
    key = random.fold_in(random.key(seed), STREAM)
    long = np.repeat(list(BLIND.values()), REPEATS * sessions)

    def decide(row: int, state: State, mask: np.ndarray) -> np.ndarray:
        enter, side = random.uniform(random.fold_in(key, row), (len(mask), 2), "float32").T
        order = np.where(side < long, Action.BUY, Action.SELL)
        return np.where(mask[:, Action.BUY] & (enter < rate), order, Action.HOLD)

    return decide


def flat(row: int, state: State, mask: np.ndarray) -> np.ndarray:
    """Never enters."""
    return np.full(len(mask), Action.HOLD)


def hold(row: int, state: State, mask: np.ndarray) -> np.ndarray:
    """Long once. Trade it with `out_of_reach` settings."""
    return np.where(mask[:, Action.BUY] & (state.trades == 0), Action.BUY, Action.HOLD)


def out_of_reach(market: Market, settings: Settings) -> Settings:
    """Settings whose stop and target no session of this market can reach, as far as int32 allows. Where the risk at the
    stop sets the size, it is one contract."""
    stop_64 = (2**31 - 4096) // int(market.atr64.max())
    far = {"stop_64": stop_64, "stop_cap_cents": 2**31 - 1, "target_ratio": 1}
    return settings._replace(**{name: np.array(value, np.int32) for name, value in far.items()})


def breakout(market: Market, m: Ints, t: Ints, opens: Sequence[int] | None = None) -> Decide:
    """Of the range of the first half hour, for sessions that begin after bar `t` of market `m`; none where the data
    begin later. The thirty bars after `t` are in its session, as an episode has that many before it at least.
    `opens` are the minutes at which the sessions of the markets begin."""
    first = np.array([OPEN] * len(market.length) if opens is None else opens)
    at = m[:, None], t[:, None] + np.arange(1, LEAST + 1)
    within = (market.minute[at] >= first[at[0]]) & (market.minute[at] < first[at[0]] + RANGE)
    least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    top = np.where(within.any(1), np.where(within, market.high[at], least).max(1), most)
    bottom = np.where(within.any(1), np.where(within, market.low[at], most).min(1), least)

    def decide(row: int, state: State, mask: np.ndarray) -> np.ndarray:
        now = state.market, state.t
        free = mask[:, Action.BUY] & (state.trades == 0) & (market.minute[now] >= first[state.market] + RANGE - 1)
        close = market.close[now]
        order = np.where(close > top, Action.BUY, np.where(close < bottom, Action.SELL, Action.HOLD))
        return np.where(free, order, Action.HOLD)

    return decide
