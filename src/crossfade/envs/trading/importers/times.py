"""Times as files write them: any order of day, month and year, twelve or twenty-four hours, seconds since 1970."""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

from .options import Dates

Seconds = Int64[np.ndarray, " rows"]
_FORM = re.compile(
    r"(?:(?P<year>\d{4})(?P<s>[-./]?)(?P<month>\d\d)(?P=s)(?P<day>\d\d)|"
    r"(?P<a>\d\d)(?P<t>[-./])(?P<b>\d\d)(?P=t)(?P<c>\d{4}|\d\d))"
    r"(?:(?:T| +|, ?|-)(?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?"
    r"(?: ?(?P<half>[APap])\.?[Mm]\.?(?![A-Za-z]))?"
    r"(?: ?(?:(?P<utc>Z|UTC|GMT)|(?:UTC|GMT)?(?P<sign>[+-])(?P<hours>\d\d)(?::?(?P<minutes>\d\d))?|"
    r"(?P<zone>[A-Za-z]+(?:/[A-Za-z_]+)+)|(?P<short>[A-Z]{2,4})))?)?"
)
_DIGITS = re.compile(
    r"(?P<year>(?:19|20)\d\d)(?P<month>\d\d)(?P<day>\d\d)(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)?"
)
_SINCE_1970 = re.compile(r"(?P<whole>\d{9,19})(?:\.(?P<fraction>\d{1,9}))?")
_GROUPS = re.compile(r"(\d+)(\D)(\d+)(\D)(\d+)(?:(\D+)(\d+))?(.*)")
_PADDED = ("a", "b", "month", "day", "hour")  # that may be written with one digit
EARLIEST, LATEST = 315_532_800, 4_102_444_800  # 1980 and 2100: what is no time since 1970 lies outside


class Parsed(NamedTuple):
    """Times as they are written."""

    date: Int64[np.ndarray, "rows 3"]  # in the order of the text
    second: Seconds  # of the day; since 1970 where there is no date
    offset: Seconds  # of the clock from UTC, where the text says so


class Unreadable(ValueError):
    """A text that is no time; holds its place and, where there is one, a reason."""

    def __init__(self, at: int, reason: str = ""):
        super().__init__(at)
        self.at, self.reason = at, reason


class Times:
    """The times of one file, all written in the form of its first one, digit for digit.

    Whole numbers are seconds since 1970, or thousandths, millionths or billionths of them: UTC in any case.
    """

    def __init__(self, like: str):
        self.like, self.zeros, self.ones = like, set(), set()
        compact = _DIGITS.fullmatch(like) if len(like) in (12, 14) else None
        self.number = None if compact else _SINCE_1970.fullmatch(like)
        self.model, self.form = like, compact or self.number or _FORM.fullmatch(like)
        if self.form is None:
            self.model = self._pad([like])[0]
            self.form = _FORM.fullmatch(self.model)
        if self.form is None:
            raise Unreadable(0)
        named = {} if self.number or compact else self.form.groupdict()
        self.zone: str | None = named.get("zone")
        self.short: str | None = named.get("short")  # EST and the like, which say too little
        self.aware = bool(self.number or named.get("utc") or named.get("sign"))
        self.written: Literal["ymd", "open", "short"] = "ymd"
        if named.get("a"):
            self.written = "open" if len(named["c"] or "") == 4 else "short"
        self.dots = named.get("t") == "."

    def parse(self, texts: Sequence[str]) -> Parsed:
        """Some of the file's times."""
        if self.number is None and (self.model != self.like or any(len(text) != len(self.like) for text in texts)):
            texts = self._pad(texts)
        model, n = self.model, len(texts)
        if len(odd := [i for i, text in enumerate(texts) if len(text) != len(model)]):
            raise Unreadable(odd[0])
        characters = np.array([model, *texts]).view(np.uint32).reshape(n + 1, len(model))
        alike = self._classes(characters)
        if len(odd := np.flatnonzero((alike != alike[:1]).any(1))):
            raise Unreadable(int(odd[0]) - 1)
        characters = characters[1:]
        for k, name in enumerate(_PADDED):
            if (at := self._span(name)[0]) >= 0 and (characters[:, at] == ord("0")).any():
                self.zeros.add(k)
        digits = characters.astype(np.int64) - ord("0")
        part = lambda name: _number(digits[:, slice(*self._span(name))]) if self._span(name)[0] >= 0 else zero
        zero = np.zeros(n, np.int64)
        if part("fraction").any():
            raise Unreadable(int(np.flatnonzero(part("fraction"))[0]), "bars begin on whole seconds")
        if self.number:
            return self._since_1970(part("whole"))
        hour, minute, second = part("hour"), part("minute"), part("second")
        wrong = (hour > 23) | (minute > 59) | (second > 59)
        if (half := self._span("half")[0]) >= 0:
            wrong |= (hour < 1) | (hour > 12)
            after_noon = (characters[:, half] == ord("P")) | (characters[:, half] == ord("p"))
            hour = hour % 12 + 12 * after_noon
        if wrong.any():
            raise Unreadable(int(np.flatnonzero(wrong)[0]))
        sign = np.where(characters[:, self._span("sign")[0]] == ord("-"), -1, 1)
        names = ("year", "month", "day") if self.written == "ymd" else ("a", "b", "c")
        date = np.stack([part(name) for name in names], -1)
        return Parsed(date, hour * 3600 + minute * 60 + second, sign * (part("hours") * 3600 + part("minutes") * 60))

    def _since_1970(self, whole: Seconds) -> Parsed:
        unit = 1000 ** ((len(self.form["whole"]) - 9) // 3)  # pyright: ignore[reportOptionalSubscript]
        if len(odd := np.flatnonzero(whole % unit)):
            raise Unreadable(int(odd[0]), "bars begin on whole seconds")
        if len(odd := np.flatnonzero((whole // unit < EARLIEST) | (whole // unit > LATEST))):
            raise Unreadable(int(odd[0]), "read as seconds since 1970 it is far from now")
        date = np.tile(np.array([1970, 1, 1]), (len(whole), 1))
        return Parsed(date, whole // unit, np.zeros_like(whole))

    def _span(self, name: str) -> tuple[int, int]:
        assert self.form is not None
        return self.form.span(name) if name in self.form.re.groupindex else (-1, -1)

    def _classes(self, characters: np.ndarray) -> np.ndarray:
        """What must be the same in all times of a file: digits are one class, halves of the day and signs others."""
        digit = (characters >= ord("0")) & (characters <= ord("9"))
        classes = np.where(digit, ord("0"), characters)
        for name, allowed in (("sign", "+-"), ("half", "APap")):
            if (at := self._span(name)[0]) >= 0:
                one_of = np.isin(characters[:, at], [ord(c) for c in allowed])
                classes[:, at] = np.where(one_of, ord(allowed[0]), characters[:, at])
        return classes

    def _pad(self, texts: Sequence[str]) -> list[str]:
        """`1/2/2024 9:30` as `01/02/2024 09:30`; a file that writes one part of a time both ways is refused."""
        found = []
        for i, text in enumerate(texts):
            match = _GROUPS.fullmatch(text)
            if match is None:
                raise Unreadable(i)
            a, s, b, t, c, u, hour, rest = match.groups(default="")
            first = 2 if len(a) > 2 else 0  # of `_PADDED`
            places = [(b, 2), (c, 3)] if first else [(a, 0), (b, 1)]
            for group, place in [*places, (hour, 4)]:
                self.ones |= {place} if len(group) == 1 else set()
                self.zeros |= {place} if len(group) == 2 and group[0] == "0" else set()
            if self.ones & self.zeros:
                raise Unreadable(i)
            found.append(f"{a:0>2}{s}{b:0>2}{t}{c:0>2}{u}{f'{hour:0>2}' if hour else ''}{rest}")
        return found


def days(date: Int64[np.ndarray, "rows 3"], order: Dates) -> tuple[Seconds, np.ndarray]:
    """Days since 1970, and whether there was such a day. Years of two digits are of this century, or before from 70."""
    year, month, day = (date[:, order.index(part)] for part in "ymd")
    year = np.where(year < 70, year + 2000, np.where(year < 100, year + 1900, year))
    months = (year - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (month - 1)
    found = months.astype("datetime64[D]") + (day - 1)
    exists = (month > 0) & (month < 13) & (day > 0) & (found.astype("datetime64[M]") == months)
    return found.astype(np.int64), exists


def _number(digits: Int64[np.ndarray, "rows width"]) -> Seconds:
    return digits @ 10 ** np.arange(digits.shape[1] - 1, -1, -1)
