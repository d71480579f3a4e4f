"""Which delivery month is traded in which session, where a file holds several.

The month of a session is the one that had the most volume in the session before, of the first its own: known in time,
and what traders do. A month is only left for a later one. Codes come again after ten years, so a month is its code and
its year. Sessions are those of the exchange, from 18:00 in New York to 17:00 of the day they are named after; elsewhere
they are days.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from ..contracts import Contract
from ..sessions import Session
from . import symbols
from .clock import Clock
from .options import Doubts
from .table import Table

EVENING = 6 * 3600  # from 18:00 on it is the next day's session
DAY = 86_400
REUSED = 180 * DAY  # an instrument's number that is absent for so long is given to another one
KINDS = {"month": "of single months", "continuous": "a continuous series", "parent": "of all months", "none": "unnamed"}


class Roll(NamedTuple):
    """A change from one month to the next."""

    session: str
    old: str
    new: str
    old_volume: float | None  # of the session before; none where the vendor chose the month
    new_volume: float | None
    jump: float  # points from the last close of the old month to the first open of the new one


class Chosen(NamedTuple):
    """One month for each session."""

    table: Table
    rolls: list[Roll]
    other_months: int  # rows of months that were not traded that day, left out


class Months(NamedTuple):
    """The months of a table in order of delivery, or of their first row where that is not known."""

    names: list[str]
    month: Int64[np.ndarray, " rows"]  # index into `names`


def without_spreads(table: Table, contract: str, codes: str) -> tuple[Table, int]:
    """The rows of single months and how many of spreads were left out; months of other contracts are refused."""
    names, which = np.unique(table.symbol, return_inverse=True)
    kinds = np.array([symbols.read(str(name), contract, codes).kind for name in names])
    if "foreign" in kinds:
        row = int(np.flatnonzero((kinds == "foreign")[which])[0])
        reason = f"symbol {str(table.symbol[row])!r} is no month of {contract}"
        table.refuse(row, reason, "Name the right --contract, or keep other contracts in files of their own.")
    spread = (kinds == "spread")[which]
    if spread.all():
        table.refuse(0, "only spreads between months", "Ask the vendor for outright months.")
    table, kind = table.where(~spread), kinds[which][~spread]
    if len(other := np.flatnonzero(kind != kind[0])):
        row = int(other[0])
        reason = f"{str(table.symbol[row])!r} is {KINDS[kind[row]]}, rows before are {KINDS[kind[0]]}"
        table.refuse(row, reason, "Import files of one kind at a time.")
    return table, int(spread.sum())


def choose(table: Table, contract: str, spec: Contract, doubts: Doubts) -> Chosen:
    """The rows of the traded month of each session."""
    kind = symbols.read(str(table.symbol[0]), contract, spec.months).kind
    names, month = _delivered(table, contract, spec) if kind == "month" else _numbered(table)
    if kind == "continuous":
        return Chosen(table, _rolls(table, names, month, {}, spec.session), 0)
    if len(names) == 1:
        return Chosen(table, [], 0)
    day, session = np.unique(sessions(table.time, spec.session), return_inverse=True)
    volume = np.zeros((len(day), len(names)))
    np.add.at(volume, (session, month), table.volume)
    present = np.bincount(session * len(names) + month, minlength=volume.size).reshape(volume.shape) > 0
    held = _held(volume, present, ordered=kind == "month")
    if len(lost := np.flatnonzero(~present[np.arange(len(day)), held])):
        row = int(np.flatnonzero(session == lost[0])[0])
        many = "1 session has" if len(lost) == 1 else f"{len(lost)} sessions have"
        reason = f"{many} no bar of the month that is held, {names[held[lost[0]]]}, but of months left before"
        doubts.doubt(table, row, reason, "Get the bars of that month, or leave the session out.")
    keep = month == held[session]
    before = {(int(d), j): float(volume[i - 1, j]) for i, d in enumerate(day) for j in range(len(names))}
    kept = table.where(keep)
    return Chosen(kept, _rolls(kept, names, month[keep], before, spec.session), len(table) - len(kept))


def sessions(time: Int64[np.ndarray, " rows"], session: Session) -> Int64[np.ndarray, " rows"]:
    """The day, since 1970, whose session each time belongs to."""
    return (Clock(session.zone).of(time) + EVENING * session.here) // DAY


def _delivered(table: Table, contract: str, spec: Contract) -> Months:
    """Months by code and year: where one digit leaves the decade open, the first that is not yet over."""
    written, which = np.unique(table.symbol, return_inverse=True)
    of = [symbols.read(str(symbol), contract, spec.months) for symbol in written]
    now = (
        sessions(table.time, spec.session).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) + 12 * 1970
    )
    month, year, digits = (np.array([getattr(s, f) for s in of])[which] for f in ("month", "year", "digits"))
    earliest = -((month - 1 - now) // 12)  # the first year in which the month of delivery is not over
    year = np.where(digits == 1, earliest + (year - earliest) % 10, year)
    delivery = 12 * year + month - 1
    if len(over := np.flatnonzero(delivery < now)):
        row = int(over[0])
        when = np.datetime64(int(now[row]) - 12 * 1970, "M")
        table.refuse(row, f"{table.symbol[row]} had expired by {when}", "Is the symbol right, or the name of the file?")
    _, first, index = np.unique(delivery, return_index=True, return_inverse=True)
    return Months([str(table.symbol[row]) for row in first], index.astype(np.int64))


def _numbered(table: Table) -> Months:
    """Months by the number of the instrument, which is given again once its month is long over."""
    _, which = np.unique(table.instrument, return_inverse=True)
    again = np.zeros(len(table), np.int64)
    order = np.argsort(which, kind="stable")
    new = (np.diff(which[order]) > 0) | (np.diff(table.time[order]) > REUSED)
    again[order] = np.concatenate([[0], np.cumsum(new)])
    _, first, index = np.unique(again, return_index=True, return_inverse=True)
    return Months([str(table.instrument[row]) for row in first], index.astype(np.int64))


def _held(volume: np.ndarray, present: np.ndarray, ordered: bool) -> Int64[np.ndarray, " sessions"]:
    """The month held in each session; of `ordered` months only later ones are rolled to, of others none left before."""
    held, left = [int(volume[0].argmax())], set()
    for today in range(1, len(volume)):
        now = held[-1]
        candidates = [m for m in np.flatnonzero(present[today]) if (m >= now if ordered else m not in left)]
        if candidates:
            best = max(candidates, key=lambda m: (volume[today - 1, m], volume[today, m]))
            if not present[today, now] or volume[today - 1, best] > volume[today - 1, now]:
                left.add(now)
                now = int(best)
        held.append(now)
    return np.array(held)


def _rolls(
    table: Table,
    names: list[str],
    month: Int64[np.ndarray, " rows"],
    volumes: dict[tuple[int, int], float],
    session: Session,
) -> list[Roll]:
    """Every change of the month from one row to the next; `volumes` are those of the session before."""
    found, days = [], sessions(table.time, session)
    for row in np.flatnonzero(month[1:] != month[:-1]) + 1:
        old, new, day = int(month[row - 1]), int(month[row]), int(days[row])
        jump = float(table.price[row, 0] - table.price[row - 1, 3])
        name = str(np.datetime64(day, "D"))
        found.append(Roll(name, names[old], names[new], volumes.get((day, old)), volumes.get((day, new)), jump))
    return found
