"""When a session begins and ends, and on which days it ends early."""

from datetime import date, timedelta
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from .bars import Bars

WARM_UP, OPEN, CLOSE, EARLY_CLOSE = 8 * 60 + 30, 9 * 60 + 30, 16 * 60 + 59, 12 * 60 + 59
"""Minutes of New York's day: the first bar kept, the first of the session, its last, and its last on half-days."""
LEAST = 30
"""Bars that an episode has before it at least."""
EPOCH = date(1970, 1, 1)


class Sessions(NamedTuple):
    """What the clock says about each bar."""

    last: Bool[np.ndarray, " bars"]
    may_enter: Bool[np.ndarray, " bars"]
    start: Int32[np.ndarray, " starts"]


def within(bars: Bars) -> Bars:
    """The bars of the warm-up hour and of the session, half-days cut at their early close."""
    end = np.where(np.isin(bars.date, _half_days(bars)), EARLY_CLOSE, CLOSE)
    return bars.where((bars.minute >= WARM_UP) & (bars.minute <= end))


def sessions(bars: Bars, warm_up: int) -> Sessions:
    """Last bars, bars after which an entry is possible, and bars after which an episode may begin.

    A session ends with its last bar in the data, so a day that breaks off early is flat early too.
    """
    n = len(bars.stamp)
    last = np.ones(n, bool)
    last[:-1] = bars.date[1:] != bars.date[:-1]
    may_enter = np.zeros(n, bool)
    may_enter[:-1] = ~last[:-1] & ~last[1:] & (bars.minute[1:] >= OPEN)
    ends = np.flatnonzero(last)
    left = ends[np.searchsorted(ends, np.arange(n))] - np.arange(n)
    start = np.flatnonzero(may_enter & (left >= LEAST) & (np.arange(n) >= warm_up))
    return Sessions(last, may_enter, start.astype(np.int32))


def half_days(year: int) -> list[date]:
    """Days on which United States exchanges close early: before Independence Day, after Thanksgiving, Christmas Eve."""
    first = date(year, 11, 1)
    thanksgiving = first + timedelta(days=(3 - first.weekday()) % 7 + 21)
    days = [date(year, 7, 3), thanksgiving + timedelta(days=1), date(year, 12, 24)]
    return [day for day in days if day.weekday() < 5]


def _half_days(bars: Bars) -> np.ndarray:
    """The half-days of the years in the data, as days since 1970."""
    years = np.unique(bars.date.astype("datetime64[D]").astype("datetime64[Y]").astype(int)) + 1970
    return np.array([(day - EPOCH).days for year in years for day in half_days(int(year))], np.int64)
