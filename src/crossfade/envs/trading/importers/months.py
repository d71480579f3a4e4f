"""Which delivery month is traded in which session, where a file holds several.

The month of a session is the one that had the most volume in the session before, of the first its own: known in time,
and what traders do. Once left, a month is not returned to. Sessions are those of the exchange, from 18:00 in New York
to 17:00 of the day they are named after.
"""

import re
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from .clock import NEW_YORK, Clock
from .table import Table

EVENING = 6 * 3600  # from 18:00 on it is the next day's session
DAY = 86_400
SPREAD = re.compile(r"[-: ]")
CONTINUOUS = re.compile(r"(\w+)\.[A-Za-z]+(\.\d+)?")
MONTH = r"[FGHJKMNQUVXZ]\d{1,2}"


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


def without_spreads(table: Table, contract: str) -> tuple[Table, int]:
    """The rows of single months and how many of spreads were left out; months of other contracts are refused."""
    names, which = np.unique(table.symbol, return_inverse=True)
    is_spread = np.array([bool(SPREAD.search(name)) for name in names])
    foreign = np.array([not s and not _belongs(name, contract) for name, s in zip(names, is_spread, strict=True)])
    if foreign.any():
        row = int(np.flatnonzero(foreign[which])[0])
        reason = f"symbol {str(table.symbol[row])!r} is no month of {contract}"
        table.refuse(row, reason, "Name the right --contract, or keep other contracts in files of their own.")
    if is_spread.all():
        table.refuse(0, "only spreads between months", "Ask the vendor for outright months.")
    return table.where(~is_spread[which]), int(is_spread[which].sum())


def choose(table: Table) -> Chosen:
    """The rows of the traded month of each session."""
    if CONTINUOUS.fullmatch(table.symbol[0]):
        return Chosen(table, _rolls(table, table.instrument, {}), 0)
    label = table.symbol if table.symbol[0] else table.instrument
    months, month = np.unique(label, return_inverse=True)
    if len(months) == 1:
        return Chosen(table, [], 0)
    day, session = np.unique(sessions(table.time), return_inverse=True)
    volume = np.zeros((len(day), len(months)))
    np.add.at(volume, (session, month), table.volume)
    held = _held(volume, np.bincount(session * len(months) + month, minlength=volume.size).reshape(volume.shape) > 0)
    keep, label = month == held[session], label[month == held[session]]
    before = {(int(d), str(m)): float(volume[i - 1, j]) for i, d in enumerate(day) for j, m in enumerate(months)}
    kept = table.where(keep)
    return Chosen(kept, _rolls(kept, label, before), len(table) - len(kept))


def sessions(time: Int64[np.ndarray, " rows"]) -> Int64[np.ndarray, " rows"]:
    """The day, since 1970, whose session each time belongs to."""
    return (Clock(NEW_YORK).of(time) + EVENING) // DAY


def _belongs(symbol: str, contract: str) -> bool:
    if continuous := CONTINUOUS.fullmatch(symbol):
        return continuous[1] == contract
    return not symbol or re.fullmatch(re.escape(contract) + MONTH, symbol) is not None


def _held(volume: np.ndarray, present: np.ndarray) -> Int64[np.ndarray, " sessions"]:
    """The month held in each session."""
    held, left = [int(volume[0].argmax())], set()
    for today in range(1, len(volume)):
        now = held[-1]
        candidates = [m for m in np.flatnonzero(present[today]) if m not in left]
        if candidates:
            best = max(candidates, key=lambda m: (volume[today - 1, m], volume[today, m]))
            if not present[today, now] or volume[today - 1, best] > volume[today - 1, now]:
                left.add(now)
                now = int(best)
        held.append(now)
    return np.array(held)


def _rolls(table: Table, label: np.ndarray, volumes: dict[tuple[int, str], float]) -> list[Roll]:
    """Every change of the label from one row to the next; `volumes` are those of the session before."""
    found, session = [], sessions(table.time)
    for row in np.flatnonzero(label[1:] != label[:-1]) + 1:
        old, new, day = str(label[row - 1]), str(label[row]), int(session[row])
        jump = float(table.price[row, 0] - table.price[row - 1, 3])
        name = str(np.datetime64(day, "D"))
        found.append(Roll(name, old, new, volumes.get((day, old)), volumes.get((day, new)), jump))
    return found
