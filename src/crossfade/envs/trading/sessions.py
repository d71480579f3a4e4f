"""When a session begins and ends, and on which days it ends early."""

from dataclasses import dataclass
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
NEW_YORK = "America/New_York"


@dataclass(frozen=True)
class Session:
    """When a contract is traded here, by the clock of its bars. The hour before is seen, but not traded."""

    zone: str = NEW_YORK
    open: int = OPEN
    """Minute of the day of its first bar."""
    close: int = CLOSE
    """Minute of its last bar."""

    @property
    def here(self) -> bool:
        """Whether it keeps the hours and the calendar of the United States: closed around 17:45, short on half-days."""
        return self.zone == NEW_YORK

    @property
    def place(self) -> str:
        """`New York`."""
        return self.zone.rpartition("/")[2].replace("_", " ")


USUAL = Session()


class Sessions(NamedTuple):
    """What clock, calendar and data say about each bar."""

    last: Bool[np.ndarray, " bars"]
    may_enter: Bool[np.ndarray, " bars"]
    session: Int32[np.ndarray, " bars"]
    start: Int32[np.ndarray, " starts"]


def scheduled_close(bars: Bars, session: Session = USUAL) -> Int32[np.ndarray, " bars"]:
    """Minute of the last bar that the day of each bar has by the calendar, whatever the data have."""
    short = np.isin(bars.date, _half_days(bars)) & session.here
    return np.where(short, np.minimum(EARLY_CLOSE, session.close), session.close).astype(np.int32)


def within(bars: Bars, session: Session = USUAL) -> Bars:
    """The bars of the warm-up hour and of the session, half-days cut at their early close."""
    begun = bars.minute >= session.open - (OPEN - WARM_UP)
    return bars.where(begun & (bars.minute <= scheduled_close(bars, session)))


def sessions(bars: Bars, warm_up: int, session: Session = USUAL) -> Sessions:
    """Last bars, bars after which an entry is possible, numbers of sessions, and bars after which an episode may begin.

    A session ends with its last bar in the data, so a day that breaks off early is flat early too. Nobody knows that
    before: `last` is for fills alone, never for masks or observations. An entry is possible where the minute after the
    bar is in the session and before its scheduled close. `start` looks ahead, so that episodes are worth beginning:
    it chooses what is learned from and judged, and no policy sees it.
    """
    n = len(bars.stamp)
    last = np.ones(n, bool)
    last[:-1] = bars.date[1:] != bars.date[:-1]
    next_minute = bars.minute + 1
    may_enter = (next_minute >= session.open) & (next_minute < scheduled_close(bars, session))
    ends = np.flatnonzero(last)
    number = np.searchsorted(ends, np.arange(n))
    left = ends[number] - np.arange(n)
    start = np.flatnonzero(may_enter & (left >= LEAST) & (np.arange(n) >= warm_up))
    return Sessions(last, may_enter, number.astype(np.int32), start.astype(np.int32))


def clock_time(minute: int) -> str:
    """`09:30` of a minute of the day."""
    return f"{minute // 60:02d}:{minute % 60:02d}"


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
