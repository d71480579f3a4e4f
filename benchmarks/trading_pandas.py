"""The old world: one account that looks up every number in a pandas DataFrame, row by row.

This is how trading environments are commonly written: `iloc` for the bar and for the window, time stamps kept in UTC
and converted at every step, money in floating-point dollars. It is kept for `crossfade bench trading` to measure, plays
phase 1 by the sound rules (see `TradingParams`), and is tested against the ledger. Nothing in it is slowed down on
purpose: rows are read once, and slices are cut before columns are chosen.
"""

import numpy as np
import pandas as pd

from crossfade.envs.trading import features
from crossfade.envs.trading.bars import Bars
from crossfade.envs.trading.contracts import contract
from crossfade.envs.trading.market import Outcome, Settings
from crossfade.envs.trading.params import Action, Reason
from crossfade.envs.trading.sessions import OPEN, sessions, within

NEW_YORK = "America/New_York"
WINDOW = 20
FEATURES = [f"feature_{i}" for i in range(11)]


def frame(bars: Bars, tick: float) -> pd.DataFrame:
    """Bars and their features as a table, prices in points, by the time in UTC."""
    atr = features.atr64(bars)
    seen = pd.DataFrame(features.of_session(bars, atr), columns=FEATURES)
    table = seen.assign(**{side: getattr(bars, side) * tick for side in ("open", "high", "low", "close")})
    table["atr"] = atr / 64 * tick
    stamps = pd.DatetimeIndex(bars.stamp.astype("datetime64[m]").astype("datetime64[s]"))
    return table.set_index(stamps.tz_localize(NEW_YORK).tz_convert("UTC"))


class PandasTrading:
    """One account; the methods are those of `ScalarTrading`."""

    def __init__(self, bars: Bars, name: str, settings: Settings):
        spec, bars = contract(name), within(bars)
        self.data, self.settings = frame(bars, spec.tick), settings
        self.starts = sessions(bars, features.WARM_UP).start
        self.tick, self.point = spec.tick, spec.tick_cents / 100 / spec.tick
        self.slippage, self.commission = spec.slippage * spec.tick, spec.commission_cents / 100

    def begin(self, uniform: np.ndarray) -> None:
        """A flat account after a bar that the second number names."""
        self.reset(int(self.starts[min(int(uniform[1] * len(self.starts)), len(self.starts) - 1)]))

    def reset(self, t: int) -> None:
        self.t = self.began = t
        self.balance = self.high_water = self.settings.initial_cents / 100
        self._flatten()

    @property
    def equity(self) -> float:
        return self.balance + self._worth(self.data["close"].iloc[self.t])

    def mask(self) -> np.ndarray:
        enter = self.position == 0 and self._may_enter()
        return np.array([True, enter, enter])

    def observation(self) -> np.ndarray:
        """The window of features and five numbers about the position."""
        window = self.data.iloc[self.t - WINDOW + 1 : self.t + 1][FEATURES].to_numpy()
        own = np.zeros(5)
        if self.position:
            row = self.data.iloc[self.t]
            own[:] = (
                self.position,
                self.position * (row["close"] - self.entry) / row["atr"],
                abs(self.stop - row["close"]) / row["atr"],
                abs(self.target - row["close"]) / row["atr"],
                (self.t - self.entry_t + 1) / 390,
            )
        return np.concatenate([window.ravel(), own]).astype(np.float32)

    def step(self, action: int) -> Outcome:
        """One action, decided after bar t, and bar t + 1."""
        before = self.equity
        if self.position == 0 and action in (Action.BUY, Action.SELL) and self._may_enter():
            self._enter(1 if action == Action.BUY else -1)
        self.t += 1
        row, last = self.data.iloc[self.t], self._is_last(self.t)
        reason, result = self._touched(row), 0.0
        if reason[0] != Reason.NONE:
            result = self._leave(reason[1])
        if self.position and last:
            reason, result = (Reason.SESSION_END, 0.0), self._leave(row["close"] - self.position * self.slippage)
        floor = self.settings.initial_cents / 100 + self.settings.lock_cents / 100
        floor = min(self.high_water - self.settings.drawdown_cents / 100, floor)
        bust = self.balance + self._worth(row["low"] if self.position > 0 else row["high"]) < floor
        if bust and self.position:
            reason, result = (Reason.BUST, 0.0), self._leave(row["close"] - self.position * self.slippage)
        equity = self.balance + self._worth(row["close"])
        self.high_water = max(self.high_water, equity)
        ended = last or self.t - self.began >= self.settings.max_bars
        return Outcome((equity - before) / 100, bust, ended and not bust, reason[0], result)

    def _enter(self, side: int) -> None:
        distance = max(1.0, np.floor(self.data["atr"].iloc[self.t] / self.tick * self.settings.stop_64 / 64 + 0.5))
        distance = min(distance, max(1.0, self.settings.stop_cap_cents / 100 // (self.tick * self.point))) * self.tick
        self.position, self.entry_t = side, self.t + 1
        self.entry = self.data["open"].iloc[self.t + 1] + side * self.slippage
        self.stop = self.entry - side * distance
        self.target = self.entry + side * distance * self.settings.target_ratio
        self.balance -= self.commission

    def _touched(self, row: pd.Series) -> tuple[int, float]:
        """Why and where the bar closes the position."""
        side = self.position
        if side == 0:
            return Reason.NONE, 0.0
        if side * (row["open"] - self.stop) <= 0:
            return Reason.STOP, row["open"]
        if side * (row["open"] - self.target) >= 0:
            return Reason.TARGET, row["open"]
        worst, best = (row["low"], row["high"]) if side > 0 else (row["high"], row["low"])
        if side * (worst - self.stop) <= 0:
            return Reason.STOP, self.stop
        return (Reason.TARGET, self.target) if side * (best - self.target) >= 0 else (Reason.NONE, 0.0)

    def _leave(self, price: float) -> float:
        """Closes the position; its result, both commissions included."""
        gained = self._worth(price)
        self.balance += gained - self.commission
        self._flatten()
        return gained - 2 * self.commission

    def _flatten(self) -> None:
        self.position, self.entry, self.stop, self.target, self.entry_t = 0, 0.0, 0.0, 0.0, 0

    def _worth(self, price: float) -> float:
        return self.position * (price - self.entry) * self.point

    def _local(self, t: int) -> pd.Timestamp:
        return self.data.index[t].tz_convert(NEW_YORK)

    def _is_last(self, t: int) -> bool:
        return t + 1 == len(self.data) or self._local(t).date() != self._local(t + 1).date()

    def _may_enter(self) -> bool:
        if self._is_last(self.t) or self._is_last(self.t + 1):
            return False
        following = self._local(self.t + 1)
        return following.hour * 60 + following.minute >= OPEN
