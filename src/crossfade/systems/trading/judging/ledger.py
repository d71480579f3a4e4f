"""Trades as a list: what a record says about each position, from its entry to its exit."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ....envs.trading.contracts import Contract
from ....envs.trading.market import Market, Settings
from ....envs.trading.params import Action, Reason, Rules
from .record import Record

Ints = Int[np.ndarray, " trades"]
REASONS = {value: name.lower() for name, value in vars(Reason).items() if name.isupper()}


class Trades(NamedTuple):
    """One row per trade, session by session and in order of time."""

    session: Ints  # of the record
    market: Ints
    entered: Ints  # bar
    left: Ints  # bar
    side: Ints  # 1 long, -1 short
    contracts: Ints
    entry: Ints  # ticks, slippage included
    exit: Ints
    result: Ints  # cents, both commissions included
    reason: Ints

    @property
    def dollars(self) -> Float[np.ndarray, " trades"]:
        return self.result / 100


def trades(record: Record, market: Market, settings: Settings, rules: Rules, m: Ints, t: Ints) -> Trades:
    """The trades of accounts that began flat after bar `t` of market `m`."""
    before = np.concatenate([np.zeros_like(record.position[:1]), record.position[:-1]])
    closed = record.reason != Reason.NONE
    opened = (before == 0) & ((record.position != 0) | closed)
    session, row_in = np.nonzero(opened.T)
    ends, row_out = np.nonzero(closed.T)
    assert np.array_equal(session, ends), "a position was left open"
    of, begin, end = m[session], t[session] + 1 + row_in, t[session] + 1 + row_out
    side = np.where(record.action[row_in, session] == Action.BUY, 1, -1)
    base = market.open[of, begin] if rules.fill == "next_open" else market.close[of, begin - 1]
    own = lambda given, column: np.where(np.asarray(given) < 0, column[of], given)
    entry = base + side * own(settings.slippage, market.slippage)
    commission = own(settings.commission_cents, market.commission_cents)
    sides = 3 if rules.commission == "three_sides" else 2
    result, contracts = record.result[row_out, session], record.contracts[row_out, session]
    ticks, rest = np.divmod(result + sides * commission * contracts, market.tick_cents[of] * contracts)
    assert not rest.any(), "a result is not a whole number of ticks"
    columns = session, of, begin, end, side, contracts, entry, entry + side * ticks, result
    return Trades(*(np.asarray(column, np.int64) for column in (*columns, record.reason[row_out, session])))


def to_csv(listed: Trades, specs: Mapping[str, Contract], dates: Sequence[np.ndarray], market: Market) -> str:
    """For spreadsheets: prices in points, money in dollars or what the contract has, times of its clock."""
    names = list(specs)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["market", "side", "contracts", "entered", "left", "entry", "exit", "result", "reason"])
    for _, of, begin, end, side, size, entry, leave, result, reason in zip(
        *map(np.ndarray.tolist, listed), strict=True
    ):
        tick = specs[names[of]].tick
        times = [_time(int(dates[of][bar]), int(market.minute[of, bar])) for bar in (begin, end)]
        prices = [f"{tick * price:.10g}" for price in (entry, leave)]
        position = [names[of], "long" if side > 0 else "short", size]
        writer.writerow([*position, *times, *prices, f"{result / 100:.2f}", REASONS[reason]])
    return text.getvalue()


def _time(date: int, minute: int) -> str:
    return f"{np.datetime64(date, 'D')} {minute // 60:02d}:{minute % 60:02d}"
