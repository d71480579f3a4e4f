"""What an import found, left out and assumed: nothing happens to a file that is not said here."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int64

from ..bars import DAY, Bars
from ..features import WARM_UP
from ..sessions import EPOCH, Session, clock_time, half_days, sessions, within
from .months import Roll

SHOWN = 20  # days listed at most


class File(NamedTuple):
    """One file that was read."""

    name: str
    rows: int
    sha256: str  # of the file on disk, the whole zip if it is one


class Gap(NamedTuple):
    """Minutes without a bar within a session."""

    at: str  # the last bar before
    minutes: int


@dataclass(frozen=True)
class Report:
    """An import in figures and words."""

    contract: str
    clock: str
    """The place whose clock the bars are kept by: New York, unless the contract is defined otherwise."""
    source: str
    zone: str
    """The clock the times were read by."""
    stamp: str
    """Whether they were those of the start or of the end of bars."""
    assumed: list[str]
    """What the files did not say, and why it was taken so."""
    files: list[File]
    rows: int
    bars: int
    first: str
    last: str
    """Times by the clock of the bars."""
    sessions: int
    partial: int
    """First bars of exports, which began before the export did, left out."""
    cut: int
    """Last rows without an end of line, which may be cut off, left out."""
    spreads: int
    """Rows of spreads between months, left out."""
    other_months: int
    """Rows of months that were not traded that day, left out."""
    duplicates: int
    """Rows that said the same again, left out."""
    rounded: int
    """Rows whose prices were rounded to the tick grid."""
    negative: int
    """Bars with prices at or below 0."""
    rolls: list[Roll]
    path_known: bool
    """Whether the order of high and low is known from bars of one second; else the nearer extreme is taken as first."""
    missing_minutes: int
    """Minutes without a bar between the first and the last bar of sessions."""
    longest_gap: Gap | None
    short_sessions: list[str]
    """Days that end earlier than usual, with the last bar; known half-days are marked."""
    untraded: list[str]
    """Days that are neither learned from nor judged: too few bars are left after the open."""
    missing_days: list[str]
    """Weekdays between the first and the last day without a session: holidays, or holes."""
    busiest: str | None
    """The beginning of the half hour with the largest volume, by that clock."""
    autocorrelation: float | None
    atr_share: float | None
    warnings: list[str]

    def json(self) -> dict[str, Any]:
        """The fields as plain Python values."""
        plain = lambda rows: [row._asdict() for row in rows]
        gap = self.longest_gap._asdict() if self.longest_gap else None
        return {**asdict(self), "files": plain(self.files), "rolls": plain(self.rolls), "longest_gap": gap}

    def text(self) -> str:
        """For people."""
        lines = [
            f"{self.contract}: {self.bars} minute bars, {self.sessions} sessions, "
            f"{self.first} to {self.last} {self.clock}",
            f"  source      {self.source}, {self.rows} rows, times read by {self.zone}, {self.stamp} of bars",
            f"  left out    {self.duplicates} duplicates, {self.spreads} rows of spreads, "
            f"{self.other_months} rows of other months, {self.partial} partial bars, {self.cut} cut off",
            f"  order       of high and low {'from bars of one second' if self.path_known else 'guessed'}",
        ]
        lines += [f"  assumed     {each}" for each in self.assumed]
        if self.autocorrelation is not None and self.atr_share is not None:
            figures = f"autocorrelation {self.autocorrelation:.3f}, average true range {100 * self.atr_share:.3f} %"
            lines.append(f"  identity    one contract: {figures} of the price")
        if self.busiest:
            lines.append(f"  clock       busiest half hour from {self.busiest}")
        longest = f", the longest {self.longest_gap.minutes} after {self.longest_gap.at}" if self.longest_gap else ""
        lines.append(f"  gaps        {self.missing_minutes} minutes without a bar{longest}")
        listed = {"short days": self.short_sessions, "not traded": self.untraded, "no session": self.missing_days}
        for name, days in listed.items():
            more = f" and {len(days) - SHOWN} more" if len(days) > SHOWN else ""
            lines += [f"  {name}  {', '.join(days[:SHOWN])}{more}"] if days else []
        for roll in self.rolls:
            by = f" (volume {roll.old_volume:g}, {roll.new_volume:g})" if roll.old_volume is not None else ""
            lines.append(f"  roll        {roll.session} {roll.old} -> {roll.new}{by}, {roll.jump:+g} points")
        return "\n".join([*lines, *(f"  warning     {warning}" for warning in self.warnings)])


def gaps(bars: Bars, session: Session) -> dict[str, Any]:
    """The fields of a report that tell what is missing."""
    of = bars.where((bars.minute >= session.open) & (bars.minute <= session.close))
    step = np.where(np.diff(of.date) == 0, np.diff(of.stamp) - 1, 0)
    widest = int(step.argmax()) if len(step) else 0
    longest = Gap(moment(int(of.stamp[widest])), int(step[widest])) if len(step) and step[widest] else None
    days, begins = np.unique(of.date, return_index=True)
    ends = of.minute[np.concatenate([begins[1:], [len(of.stamp)]]) - 1]
    usual = int(np.bincount(ends).argmax())
    known = {(day - EPOCH).days for year in _years(days) for day in half_days(year) if session.here}
    short = [
        f"{_day(day)} until {clock_time(end)}{' (half-day)' if day in known else ''}"
        for day, end in zip(days.tolist(), ends.tolist(), strict=True)
        if end < usual - 15
    ]
    weekdays = np.arange(days[0], days[-1] + 1)
    weekdays = weekdays[(weekdays + 3) % 7 < 5]
    return {
        "sessions": len(days),
        "missing_minutes": int(step.sum()),
        "longest_gap": longest,
        "short_sessions": short,
        "untraded": [_day(day) for day in np.setdiff1d(days, _traded(bars, session)).tolist()],
        "missing_days": [_day(day) for day in np.setdiff1d(weekdays, days).tolist()],
    }


def _traded(bars: Bars, session: Session) -> Int64[np.ndarray, " days"]:
    """Days on which an episode can begin."""
    of = within(bars, session)
    return of.date[sessions(of, WARM_UP, session).start]


def moment(stamp: int) -> str:
    """`2024-01-02 09:30`."""
    return f"{_day(stamp // DAY)} {clock_time(stamp % DAY)}"


def _day(day: int) -> str:
    return str(np.datetime64(day, "D"))


def _years(days: np.ndarray) -> range:
    first, last = (int(_day(day)[:4]) for day in days[[0, -1]].tolist())
    return range(first, last + 1)
