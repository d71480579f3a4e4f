"""The clocks that times are written by."""

import re
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
from jaxtyping import Bool, Int64

from ....errors import UsageError
from ..sessions import NEW_YORK

Seconds = Int64[np.ndarray, " rows"]
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
        quarters, which = np.unique(time // QUARTER, return_inverse=True)
        first, second = (
            np.array([_offset(datetime.fromtimestamp(int(q) * QUARTER, UTC), self.zone, fold) for q in quarters])
            for fold in (0, 1)
        )
        return time - first[which], (first != second)[which]

    def of(self, utc: Seconds) -> Seconds:
        """What this clock shows, as if it were UTC."""
        quarters, which = np.unique(utc // QUARTER, return_inverse=True)
        moments = (datetime.fromtimestamp(int(q) * QUARTER, self.zone).utcoffset() for q in quarters)
        offsets = np.array([int((offset or timedelta()).total_seconds()) for offset in moments], np.int64)
        return utc + offsets[which] + self.shift


def _offset(shown: datetime, zone: ZoneInfo, fold: int) -> int:
    offset = shown.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()
    return int(offset.total_seconds())


def text(utc: int, zone: str = NEW_YORK) -> str:
    """`2024-01-02 09:30` in New York, or elsewhere."""
    return datetime.fromtimestamp(utc, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")
