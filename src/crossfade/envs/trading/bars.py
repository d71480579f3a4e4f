"""One-minute bars of one contract, before features are made of them."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32, Int64

DAY = 24 * 60


class Bars(NamedTuple):
    """Bars in order of time; prices in ticks."""

    stamp: Int64[
        np.ndarray, " bars"
    ]  # minutes since 1970 on the clock of its session, New York's for most, at the start
    open: Int32[np.ndarray, " bars"]
    high: Int32[np.ndarray, " bars"]
    low: Int32[np.ndarray, " bars"]
    close: Int32[np.ndarray, " bars"]
    volume: Int64[np.ndarray, " bars"]
    high_first: Bool[np.ndarray, " bars"]  # the high came before the low

    @property
    def date(self) -> Int64[np.ndarray, " bars"]:
        """Days since 1970."""
        return self.stamp // DAY

    @property
    def minute(self) -> Int32[np.ndarray, " bars"]:
        """Minute of the day."""
        return (self.stamp % DAY).astype(np.int32)

    def where(self, keep: Bool[np.ndarray, " bars"]) -> "Bars":
        """Some of the bars."""
        return Bars(*(column[keep] for column in self))


def nearer_extreme_first(bars: Bars) -> Bool[np.ndarray, " bars"]:
    """A guess of `high_first` where only the bars are known: the extreme nearer to the open came first."""
    return bars.high - bars.open < bars.open - bars.low
