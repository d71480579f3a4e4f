"""New days out of a user's own bars: a stationary bootstrap of returns that keeps the time of day.

Minutes follow one another as they did, for a day on average; then another day goes on at the same minute. Volatility
and volume keep their shape through the day and contracts move together as they did, while what lasts longer than a
block is lost: more days to learn from, of the same kind, none of which has happened.
"""

from collections.abc import Mapping
from datetime import date
from functools import reduce
from typing import NamedTuple

import numpy as np
from jaxtyping import Int64

from ...errors import UsageError
from .bars import DAY, Bars
from .contracts import Contract, contract
from .sessions import EPOCH, within
from .synthetic import weekdays

USUAL = 0.9  # share of the days on which a minute must have a bar to belong to the day
WHOLE = 0.95  # share of these minutes that a day must have; the rest is filled with bars that stand still
LEAST_DAYS = 5
STREAM = 0xB007  # of the draws, beside those of the synthetic markets


class _Days(NamedTuple):
    """Whole days of one contract, end to end."""

    before: np.ndarray  # close of the bar before
    sides: np.ndarray  # (bars, 4) ticks: open, high, low, close
    volume: np.ndarray
    high_first: np.ndarray


def bars(
    of: Mapping[str, Bars],
    days: int,
    seed: int,
    block: float | None = None,
    contracts: Mapping[str, Contract] | None = None,
) -> dict[str, Bars]:
    """`days` new weekdays of the same contracts; blocks are `block` minutes long on average, a day unless given."""
    contracts = contracts or {}
    of = {name: within(own, (contracts.get(name) or contract(name)).session) for name, own in of.items()}
    if below := [name for name, own in of.items() if len(own.low) and own.low.min() <= 0]:
        raise UsageError(f"{below[0]}: returns of prices at or below 0 cannot be resampled. Leave those days out.")
    known, minutes = _grid(of)
    if len(known) < LEAST_DAYS:
        raise UsageError(f"expected at least {LEAST_DAYS} whole days to resample, got {len(known)}. Import more data.")
    mean = float(len(minutes)) if block is None else block
    source = _source(len(known), len(minutes), days, mean, np.random.default_rng((seed, STREAM)))
    stamp = (
        np.array([(day - EPOCH).days for day in weekdays(date(2022, 1, 3), days)], np.int64)[:, None] * DAY + minutes
    )
    found = {}
    for name, own in of.items():
        day = _whole(own, known, minutes)
        close = day.sides[:, 3]
        path = np.log(day.before[source[0]]) + np.cumsum(np.log(close / day.before)[source])
        ticks = np.rint(np.exp(path)[:, None] * (day.sides / close[:, None])[source]).astype(np.int32)
        sides = (ticks[:, i] for i in range(4))
        found[name] = Bars(stamp.reshape(-1), *sides, volume=day.volume[source], high_first=day.high_first[source])
    return found


def _grid(of: Mapping[str, Bars]) -> tuple[Int64[np.ndarray, " days"], Int64[np.ndarray, " minutes"]]:
    """Days and minutes that all contracts have, but for a few bars."""
    counts = [(own, np.bincount(own.minute, minlength=DAY), len(np.unique(own.date))) for own in of.values()]
    minutes = reduce(np.intersect1d, [np.flatnonzero(count >= USUAL * days) for _, count, days in counts])
    whole = []
    for own in of.values():
        day, count = np.unique(own.date[np.isin(own.minute, minutes)], return_counts=True)
        whole.append(day[count >= WHOLE * len(minutes)])
    return reduce(np.intersect1d, whole), minutes


def _source(known: int, minutes: int, days: int, block: float, rng: np.random.Generator) -> Int64[np.ndarray, " bars"]:
    """For every new bar the old one it is made of: the next one, or with chance 1 / block the same minute elsewhere."""
    at = np.arange(days * minutes)
    jump = rng.random(len(at)) < 1 / block
    jump[0] = True
    since = np.maximum.accumulate(np.where(jump, at, 0))
    first = rng.integers(0, known, len(at))[since] * minutes + since % minutes
    return (first + at - since) % (known * minutes)


def _whole(own: Bars, known: Int64[np.ndarray, " days"], minutes: Int64[np.ndarray, " minutes"]) -> _Days:
    """The known days with a bar at each of the minutes."""
    stamp = (known[:, None] * DAY + minutes).reshape(-1)
    at = np.maximum(np.searchsorted(own.stamp, stamp, side="right") - 1, 0)
    there = own.stamp[at] == stamp
    still = own.close[at][:, None]  # a minute without a trade
    sides = np.where(there[:, None], np.stack([own.open, own.high, own.low, own.close], -1)[at], still)
    before = np.where(there & (at > 0), own.close[at - 1], sides[:, 0])
    volume = np.where(there, own.volume[at], 0)
    return _Days(before, sides, volume, own.high_first[at] & there)
