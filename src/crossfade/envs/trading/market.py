"""What the twins are given and what they keep: NamedTuples of arrays, NumPy's or JAX's."""

from typing import Any, NamedTuple


class Market(NamedTuple):
    """Bars of several markets, padded to the longest. Data, never copied per environment: index [market, t]."""

    open: Any  # (markets, bars) int32 ticks
    high: Any  # (markets, bars)
    low: Any  # (markets, bars)
    close: Any  # (markets, bars)
    high_first: Any  # (markets, bars) bool: the high came before the low
    atr64: Any  # (markets, bars) int32: average true range of bars up to this one, in 1/64 ticks, at least 1
    minute: Any  # (markets, bars) int32: minute of the day in New York at which the bar starts
    may_enter: Any  # (markets, bars) bool: by clock and calendar the minute after it is in the session, before its end
    last: Any  # (markets, bars) bool: the last bar of its session in the data; fills alone may know it
    session: Any  # (markets, bars) int32: number of its session, from 0
    final: Any  # (markets, bars) bool: the next session is not to be traded, accounts end with this one
    features: Any  # (markets, bars, n_features) float32, float16 or bfloat16, causal; seen as float32
    length: Any  # (markets,) int32: bars that are not padding
    start: Any  # (markets, starts) int32: bars after which an episode may begin, padded with the last one
    n_start: Any  # (markets,) int32
    tick_cents: Any  # (markets,) int32
    slippage: Any  # (markets,) int32
    commission_cents: Any  # (markets,) int32
    reward_scale: Any  # (markets,) float32: reward of one cent


class Settings(NamedTuple):
    """What a curriculum changes: data, so that nothing is compiled anew. Scalars, or one value per environment."""

    initial_cents: Any = 5_000_000
    drawdown_cents: Any = 1_500_000
    lock_cents: Any = 10_000
    liquidation_cents: Any = 0
    stop_64: Any = 96  # ATR, in 1/64
    stop_cap_cents: Any = 50_000  # per contract
    target_ratio: Any = 3
    trail_64: Any = 64
    break_even_64: Any = 32
    contracts: Any = 1  # of a position, at most if risk_cents is above 0
    risk_cents: Any = 0  # that a position may lose at its stop; 0: its size is `contracts`
    commission_cents: Any = -1  # per contract and side; negative: the market's own
    slippage: Any = -1  # ticks; negative: the market's own
    days: Any = 1  # sessions that an account lives
    max_bars: Any = 1_000_000
    forced: Any = 0  # of 1024 episodes so many begin with a position
    forced_64: Any = 64  # how far from the close it was entered at most: ATR, in 1/64
    progress: Any = 0.0  # share of the training that is done; only the published rewards read it


class State(NamedTuple):
    """One account per environment; int32 throughout."""

    market: Any
    t: Any  # the bar that has just closed
    position: Any  # -1, 0, 1
    contracts: Any  # of the open position; 0 when flat
    entry: Any  # ticks; 0 when flat, like the two below
    stop: Any
    target: Any
    entry_t: Any
    trailing: Any  # 0 or 1
    break_even: Any  # moves of the stop to the entry, of this position
    balance: Any  # cents
    high_water: Any
    began: Any  # the bar after which the episode began
    trades: Any  # positions opened
    wins: Any
    losses: Any
    commissions: Any  # cents paid so far
    slippages: Any  # cents lost to slippage so far
    illegal: Any  # actions that the mask forbade


class Outcome(NamedTuple):
    """What a step says beside the next state."""

    reward: Any  # float
    terminated: Any  # bool
    truncated: Any  # bool
    reason: Any  # int32: why a position was closed, NONE if none was
    result: Any  # int32: cents that the closed position brought, both commissions included
