"""What a policy sees of the bars: causal features, eleven per bar, and the integer ATR that stops are made of.

`session` features have no scale of their own: prices enter as distances in ATR, volume against the same minute of
earlier days, time as shares of a usual session. `sound` are those of earlier versions: their distance to the VWAP,
which grows as a session goes on, is clipped in one bar of four, and their angle is the same at the open and at the
close.
`seed8` are the published eight raw columns and three of time.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float, Float32, Int32
from scipy.signal import lfilter

from .bars import Bars
from .sessions import USUAL, Session, scheduled_close

Features = Literal["session", "sound", "seed8"]
WARM_UP = 60
"""Bars whose features are not yet worth seeing."""
Column = Float[np.ndarray, " bars"]


def atr64(bars: Bars, n: int = 14) -> Int32[np.ndarray, " bars"]:
    """Mean true range of the last n bars in 1/64 ticks, at least 1. A gap between sessions is no range of a bar."""
    before = np.concatenate([bars.close[:1], bars.close[:-1]])
    before = np.where(_first_of_session(bars), bars.open, before)
    true_range = np.maximum(bars.high, before).astype(np.int64) - np.minimum(bars.low, before)
    total = np.cumsum(np.concatenate([np.full(n, true_range[0]), true_range]))
    return np.maximum(1, 64 * (total[n:] - total[:-n]) // n).astype(np.int32)


def make(
    name: Features, bars: Bars, atr: Int32[np.ndarray, " bars"], tick: float, session: Session = USUAL
) -> Float32[np.ndarray, "bars 11"]:
    """The named features; `tick` is in points."""
    if name == "seed8":
        return seed8(bars, tick, session)
    return (sound if name == "sound" else of_session)(bars, atr, session)


def of_session(bars: Bars, atr: Int32[np.ndarray, " bars"], session: Session = USUAL) -> Float32[np.ndarray, "bars 11"]:
    """Return, range and place in it, volume, distances to mean, VWAP and ten bars ago, RSI, MACD, time gone and left.

    The distance to the VWAP is in ATR times the square root of the bars since the session's first: it is as wide at
    the close as at the open. Times are in usual sessions; what is left is until the scheduled close of the day.
    """
    length, first = session.close - session.open, np.flatnonzero(_first_of_session(bars))
    at = np.arange(len(bars.stamp))
    since = at - first[np.searchsorted(first, at, side="right") - 1]
    gone = (bars.minute - session.open) / length - 0.5
    left = (scheduled_close(bars, session) - bars.minute) / length
    return _scale_free(bars, atr, np.sqrt(np.maximum(since, 1)), (gone, left))


def sound(bars: Bars, atr: Int32[np.ndarray, " bars"], session: Session = USUAL) -> Float32[np.ndarray, "bars 11"]:
    """The same with the distance to the VWAP in ATR, and sine and cosine of the time of day."""
    turn = 2 * np.pi * (bars.minute - session.open) / (session.close - session.open)
    return _scale_free(bars, atr, np.ones(len(atr)), (np.sin(turn), np.cos(turn)))


def _scale_free(
    bars: Bars, atr: Int32[np.ndarray, " bars"], vwap_spread: Column, time: tuple[Column, Column]
) -> Float32[np.ndarray, "bars 11"]:
    close, unit = bars.close.astype(np.float64), atr / 64
    before = np.where(_first_of_session(bars), close, np.concatenate([close[:1], close[:-1]]))
    spread = (bars.high - bars.low).astype(np.float64)
    columns = [
        (close - before) / unit,
        spread / unit,
        (close - bars.low) / np.maximum(spread, 1) - 0.5,
        _volume_surprise(bars),
        (close - _mean(close, 20)) / unit,
        (close - _vwap(bars)) / (unit * vwap_spread),
        _rsi(close) / 100 - 0.5,
        (close - _before(close, 10)) / unit,
        (_ema(close, 12) - _ema(close, 26)) / unit,
        *time,
    ]
    return np.clip(np.stack(columns, -1), -10, 10).astype(np.float32)


def seed8(bars: Bars, tick: float, session: Session = USUAL) -> Float32[np.ndarray, "bars 11"]:
    """close, volume, SMA 5 and 20, RSI, MACD, momentum, ATR, all raw; hour / 24, minutes since open and to close."""
    close = bars.close * tick
    earlier = _before(close, 10)
    columns = [
        close,
        bars.volume,
        _mean(close, 5),
        _mean(close, 20),
        _rsi(close),
        _ema(close, 12) - _ema(close, 26),
        np.divide(close, earlier, out=np.ones_like(close), where=earlier != 0),
        atr64(bars) / 64 * tick,
        bars.minute // 60 / 24,
        bars.minute - session.open,
        session.close - bars.minute,
    ]
    return np.stack(columns, -1).astype(np.float32)


def _first_of_session(bars: Bars) -> np.ndarray:
    first = np.ones(len(bars.stamp), bool)
    first[1:] = bars.date[1:] != bars.date[:-1]
    return first


def _before(x: Column, n: int) -> Column:
    """x of n bars ago; of the first bar where there is none."""
    return np.concatenate([np.full(min(n, len(x)), x[0]), x[:-n]])


def _mean(x: Column, n: int) -> Column:
    """Mean of the last n bars, of fewer at the start.

    As a filter, not as a difference of sums over everything: what lies far back must not even change the rounding.
    """
    windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([np.full(n - 1, x[0]), x]), n)
    return windows.mean(-1)


def _ema(x: Column, span: int) -> Column:
    alpha = 2 / (span + 1)
    return np.asarray(lfilter([alpha], [1, alpha - 1], x, zi=[(1 - alpha) * x[0]])[0])


def _rsi(close: Column, n: int = 14) -> Column:
    change = close - _before(close, 1)
    gain, loss = _mean(np.maximum(change, 0), n), _mean(np.maximum(-change, 0), n)
    return 100 - 100 / (1 + gain / (loss + 1e-8))


def _vwap(bars: Bars) -> Column:
    """Volume-weighted mean price of the session so far."""
    session = np.cumsum(_first_of_session(bars)) - 1
    begins = np.flatnonzero(_first_of_session(bars))
    typical = (bars.high + bars.low + bars.close) / 3
    volume = np.maximum(bars.volume, 1)
    running = lambda x: np.concatenate([np.cumsum(part) for part in np.split(x, begins[1:])])
    return running(typical * volume)[: len(session)] / running(volume)


def _volume_surprise(bars: Bars) -> Column:
    """log volume against its mean and spread at the same minute of all earlier days."""
    log_volume = np.log1p(bars.volume.astype(np.float64))
    order = np.lexsort((bars.stamp, bars.minute))
    minute, x = bars.minute[order], log_volume[order]
    begins = np.flatnonzero(np.concatenate([[True], minute[1:] != minute[:-1]]))
    surprise = np.empty_like(x)
    for part in np.split(np.arange(len(x)), begins[1:]):
        values = x[part]
        count = np.arange(len(values))
        total, square = (np.concatenate([[0.0], np.cumsum(v)[:-1]]) for v in (values, values**2))
        mean = total / np.maximum(count, 1)
        deviation = np.sqrt(np.maximum(square / np.maximum(count, 1) - mean**2, 0.01))
        surprise[part] = np.where(count >= 2, (values - mean) / deviation, 0)
    found = np.empty_like(surprise)
    found[order] = surprise
    return found
