"""The clocks that times are written by."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from jaxtyping import Bool, Int64

from ....errors import UsageError
from ..sessions import NEW_YORK

Seconds = Int64[np.ndarray, " rows"]
DAY = 86_400
QUARTER = 15 * 60  # clocks are changed on a quarter of the hour


class Clock:
    """A zone by name, `America/Chicago`, or hours ahead of one: `UTC+2`, `America/New_York+7`."""

    def __init__(self, name: str):
        self.name, self.shift = name, 0
        try:
            self.zone = ZoneInfo(name)
        except (KeyError, ValueError, OSError):
            match = re.fullmatch(r"(.+?)([+-]\d{1,2})", name)
            try:
                self.zone = ZoneInfo(match[1] if match else "")
            except (KeyError, ValueError, OSError):
                raise UsageError(
                    f"unknown zone {name!r}. Expected a name such as America/Chicago or Europe/Berlin, or hours ahead "
                    "of one: UTC+2, America/New_York+7."
                ) from None
            self.shift = int(match[2]) * 3600 if match else 0

    def to_utc(self, time: Seconds) -> tuple[Seconds, Bool[np.ndarray, " rows"]]:
        """UTC of what this clock showed, and whether it never showed that or showed it twice: when it is changed."""
        time = time - self.shift
        shown = lambda fold: lambda t: datetime.fromtimestamp(t, UTC).replace(tzinfo=self.zone, fold=fold)
        first, second = (_offsets(time, shown(fold)) for fold in (0, 1))
        return time - first, first != second

    def of(self, utc: Seconds) -> Seconds:
        """What this clock shows, as if it were UTC."""
        return utc + _offsets(utc, lambda t: datetime.fromtimestamp(t, self.zone)) + self.shift


def _offsets(time: Seconds, moment: Callable[[int], datetime]) -> Seconds:
    """Seconds ahead of UTC: asked for at the ends of each day, and every quarter of an hour where these differ."""
    ahead = lambda t: int((moment(int(t)).utcoffset() or timedelta()).total_seconds())
    days, day = np.unique(time // DAY, return_inverse=True)
    ends = np.array([(ahead(d * DAY), ahead((d + 1) * DAY)) for d in days], np.int64).reshape(-1, 2)
    found = ends[day, 0]
    changes = np.flatnonzero((ends[:, 0] != ends[:, 1])[day])
    quarters, quarter = np.unique(time[changes] // QUARTER, return_inverse=True)
    found[changes] = np.array([ahead(q * QUARTER) for q in quarters], np.int64)[quarter]
    return found


def text(utc: int, zone: str = NEW_YORK) -> str:
    """`2024-01-02 09:30` in New York, or elsewhere."""
    return datetime.fromtimestamp(utc, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")
