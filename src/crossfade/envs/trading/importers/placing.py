"""When the times of a file were: the order of its dates, and the clock they were written by."""

import numpy as np

from ....errors import UsageError
from . import clock
from .columns import Columns
from .formats import Format
from .options import Dates
from .times import days


def dates(name: str, columns: Columns, told: Dates | None, form: Format) -> tuple[np.ndarray, list[str]]:
    """Seconds of the dates, and what was assumed of their order."""
    times, (a, b) = columns.times, columns.date.T[:2]
    order, why, written = told, "", times.like
    if times.written == "ymd":
        if told not in (None, "ymd"):
            columns.refuse(name, 0, f"{written!r} begins with the year", f"Leave out --dates {told}.")
        order = "ymd"
    elif order is None and times.written == "open":
        first, second = a > 12, b > 12
        if first.any() and second.any():
            row = int(np.flatnonzero(first if second.argmax() < first.argmax() else second)[0])
            columns.refuse(name, row, "here the other number is the month than in rows before")
        if first.any() or second.any():
            order, why = ("dmy", "a first") if first.any() else ("mdy", "a second")
            row = int((first | second).argmax())
            why = f"row {columns.line[row]} has {why} number above 12"
        elif form.dates is not None:
            order, why = form.dates, "as this source writes them"
        elif times.dots:
            order, why = "dmy", "as dates with points are"
    if order is None:
        reason = f"whether day, month or year comes first in {written!r} is left open by all rows"
        columns.refuse(name, 0, reason, "Tell the order: --dates mdy, --dates dmy or --dates ymd.")
    day, exists = days(columns.date, order)
    if len(odd := np.flatnonzero(~exists)):
        y, m, d = (int(columns.date[odd[0], order.index(part)]) for part in "ymd")
        reason = f"expected a time like {written!r}, got day {d} of month {m} in {y}"
        columns.refuse(name, int(odd[0]), reason)
    return day * 86400, [f"dates are {order}, {why}"] if why else []


def to_utc(
    name: str, columns: Columns, date: np.ndarray, told: str | None, form: Format, source: str
) -> tuple[np.ndarray, str, list[str]]:
    """Times in UTC by the zone that the texts name, that the user has told or that is usual for the source."""
    times, shown = columns.times, date + columns.second
    if (times.aware or times.zone) and told is not None:
        columns.refuse(name, 0, "the times name their own zone", f"Leave out --zone {told}.")
    if times.aware:
        return shown - columns.offset, "the zone they name", []
    if times.short and told is None:
        reason = f"{times.short!r} behind the times is no zone: some write it all year, some by season"
        columns.refuse(name, 0, reason, "Tell the clock with --zone, e.g. --zone America/New_York.")
    zone = told or times.zone or form.zone
    if zone is None:
        advice = "Tell the clock they were written by with --zone, e.g. --zone America/Chicago."
        columns.refuse(name, 0, "the times name no zone", advice)
    time, unclear = _clock(name, columns, zone, times.zone).to_utc(shown)
    if len(rows := np.flatnonzero(unclear)):
        columns.refuse(
            name,
            int(rows[0]),
            f"the clock of {zone} never showed this time, or twice: it is the hour of its change, on a weekend",
            "No bar can be from then, so the zone is wrong: tell the right one with --zone.",
        )
    assumed = [] if told or times.zone else [f"times are by {zone}, as {source} writes them"]
    return time, zone, assumed


def _clock(name: str, columns: Columns, zone: str, named: str | None) -> clock.Clock:
    try:
        return clock.Clock(zone)
    except UsageError as error:
        if named is None:
            raise
        columns.refuse(name, 0, f"the times name a zone that is not known: {error}", "Take it out, and tell --zone.")
