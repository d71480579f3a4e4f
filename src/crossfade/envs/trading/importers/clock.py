"""Times as files write them, and the clocks they are written by."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from jaxtyping import Bool, Int64

from ....errors import UsageError

Seconds = Int64[np.ndarray, " rows"]
QUARTER = 15 * 60  # clocks are changed on a quarter of the hour
NEW_YORK = "America/New_York"
_FORM = re.compile(
    r"(?P<year>\d{4})[-./]?(?P<month>\d\d)[-./]?(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:\.\d+)?)?)?"
    r" ?(?:Z|(?P<sign>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d))?"
)


class Stamps(NamedTuple):
    """Times as they are written, and where the text says so the offset of its clock from UTC."""

    time: Seconds
    offset: Seconds | None


class Unreadable(ValueError):
    """A text that is no time; holds its place."""

    def __init__(self, at: int):
        super().__init__(at)
        self.at = at


def parse(texts: Sequence[str], like: str) -> Stamps:
    """Times that are all written in the form of `like`, digit for digit.

    Whole numbers are seconds since 1970, or thousandths, millionths or billionths of them: UTC in any case.
    """
    number, form = len(like) > 8 and like.isdigit(), _FORM.fullmatch(like)
    if not number and form is None:
        raise Unreadable(0)
    lengths = np.array([len(text) for text in texts])
    if len(odd := np.flatnonzero(lengths != len(like))):
        raise Unreadable(int(odd[0]))
    characters = np.array([like, *texts]).view(np.uint32).reshape(len(texts) + 1, len(like))
    alike = _classes(characters) == _classes(characters[:1])
    if len(odd := np.flatnonzero(~alike.all(1))):
        raise Unreadable(int(odd[0]) - 1)
    digits = characters[1:].astype(np.int64) - ord("0")
    if form is None:
        return Stamps(_number(digits) // 1000 ** ((len(like) - 9) // 3), np.zeros(len(texts), np.int64))

    def part(name: str) -> Seconds:
        start, end = form.span(name)
        return _number(digits[:, start:end]) if start >= 0 else np.zeros(len(texts), np.int64)

    month = (part("year") - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (part("month") - 1)
    day = month.astype("datetime64[D]") + (part("day") - 1)
    hour, minute, second = part("hour"), part("minute"), part("second")
    exists = (day.astype("datetime64[M]") == month) & (part("month") > 0) & (part("month") < 13)
    if len(odd := np.flatnonzero(~exists | (hour > 23) | (minute > 59) | (second > 59))):
        raise Unreadable(int(odd[0]))
    time = day.astype(np.int64) * 86400 + hour * 3600 + minute * 60 + second
    if not (form["sign"] or like.endswith("Z")):
        return Stamps(time, None)
    sign = np.where(characters[1:, form.start("sign")] == ord("-"), -1, 1)
    return Stamps(time, sign * (part("hours") * 3600 + part("minutes") * 60))


def _classes(characters: np.ndarray) -> np.ndarray:
    """What must be the same in all times of a file: digits are one class, signs another."""
    digit = (characters >= ord("0")) & (characters <= ord("9"))
    sign = (characters == ord("+")) | (characters == ord("-"))
    return np.where(digit, ord("0"), np.where(sign, ord("-"), characters))


def _number(digits: Int64[np.ndarray, "rows width"]) -> Seconds:
    return digits @ 10 ** np.arange(digits.shape[1] - 1, -1, -1)


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


def text(utc: int) -> str:
    """`2024-01-02 09:30` in New York."""
    return datetime.fromtimestamp(utc, ZoneInfo(NEW_YORK)).strftime("%Y-%m-%d %H:%M")
