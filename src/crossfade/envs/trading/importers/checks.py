"""What rows must be before they are bars: complete, in order, on the grid, one contract, on the right clock."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64

from .. import features
from ..bars import DAY, Bars, nearer_extreme_first
from ..sessions import OPEN, Session, clock_time
from .clock import Clock, text
from .options import Doubts, OffGrid
from .table import Table

INDICES = ("ES", "NQ", "YM", "RTY", "MES", "MNQ", "MYM", "M2K")
BREAK, REOPEN = 17 * 60 + 30, 18 * 60  # the exchange is closed, and has been since 2006 at least
LARGEST = 1e7  # points; ticks of a hundredth still fit into 32 bits
CLOSED_SHARE = 0.005  # of the bars that may lie in hours when the exchange is closed
AUTOCORRELATION, ATR_SHARE = -0.2, 0.002  # beyond these two contracts alternate
LIVELY = 390  # minutes from the open by which identity is judged
LEAST_RETURNS, LEAST_DAYS = 200, 5  # to judge identity and clock by
WEEKEND = 5 * DAY  # minutes: bars so far apart at most are neighbours, a long weekend being between them


def order(table: Table) -> None:
    """Refuses rows of one file that go back in time."""
    back = np.concatenate([[False], np.diff(table.time) < 0])
    table.refuse_where(back, "it is earlier than the row before", "Sort the file by time, oldest first.")


def rows(table: Table, negative: bool = False) -> None:
    """Refuses what no bar can be; prices at or below 0 too, unless they may be `negative`."""
    o, h, l, c = table.price.T  # noqa: E741
    mend = "Mend or leave out the row."
    table.refuse_where(
        ~np.isfinite(table.price).all(1),
        "open {open}, high {high}, low {low}, close {close}: not all are numbers",
        mend,
    )
    if not negative:
        advice = f"{mend} If it was one, as of crude oil in April 2020: --negative."
        table.refuse_where((table.price <= 0).any(1), "a price of {low} is not above 0", advice)
    table.refuse_where((np.abs(table.price) > LARGEST).any(1), f"a price of {{high}} is above {LARGEST:.0f}", mend)
    table.refuse_where(h < l, "the high {high} is below the low {low}", mend)
    table.refuse_where(
        (np.maximum(o, c) > h) | (np.minimum(o, c) < l),
        "open {open} and close {close} do not lie between low {low} and high {high}",
        mend,
    )
    table.refuse_where(~(np.isfinite(table.volume) & (table.volume >= 0)), "volume {volume} is no volume", mend)


def without_duplicates(table: Table) -> tuple[Table, int]:
    """Rows that say the same of one time are kept once; rows that differ are refused."""
    again = np.concatenate([[False], np.diff(table.time) == 0])
    differs = np.concatenate([[False], (np.diff(table.price, axis=0) != 0).any(1) | (np.diff(table.volume) != 0)])
    if len(found := np.flatnonzero(again & differs)):
        row = int(found[0])
        show = lambda i: " ".join(f"{x:g}" for x in (*table.price[i], table.volume[i]))
        before = f"{table.names[table.file[row - 1]]}, row {table.line[row - 1]}"
        table.refuse(
            row,
            f"two bars of {text(int(table.time[row]))} New York time: {show(row)} here, {show(row - 1)} in {before}",
            "Several contracts in one file need a column `symbol`; else keep one bar per time.",
        )
    return table.where(~again), int(again.sum())


def in_ticks(table: Table, tick: float, off_grid: OffGrid) -> tuple[Int32[np.ndarray, "rows 4"], int]:
    """Prices in ticks, and how many rows had one between ticks."""
    ticks = np.rint(table.price / tick)
    off = (np.abs(table.price / tick - ticks) > 1e-3).any(1)
    if off_grid == "refuse":
        table.refuse_where(
            off,
            f"open {{open}}, high {{high}}, low {{low}}, close {{close}} are not all multiples of {tick:g}",
            "Is the contract right, and are prices unadjusted? Adjusted ones may be rounded: --off-grid round.",
        )
    return ticks.astype(np.int32), int(off.sum())


class Minutes(NamedTuple):
    """Bars of one minute, and the first row of the table that each was made of."""

    bars: Bars
    row: Int64[np.ndarray, " bars"]
    path_known: bool  # whether `high_first` is known rather than guessed


def minutes(table: Table, ticks: Int32[np.ndarray, "rows 4"], zone: str) -> Minutes:
    """Bars of one minute by the clock of `zone`, put together from bars of one second where the file has those."""
    second = table.time % 60
    by_minute = not second.any()
    if len(np.unique(second)) == 1 and second[0]:
        table.refuse(0, f"every time is {second[0]} s past the minute", "Expected the start of the bar (see --source).")
    step = np.diff(table.time)
    usual = int(np.bincount(step[step <= DAY * 60]).argmax()) if len(step) and step.min() <= DAY * 60 else 60
    if by_minute and usual != 60:
        table.refuse(1, f"bars are {usual} s apart", "Expected bars of one minute or of one second.")
    if usual == 60:
        table.refuse_where(second > 0, "it does not begin on the minute, as most bars do", "Mend or leave out the row.")
    stamp = Clock(zone).of(table.time) // 60
    begins = np.flatnonzero(np.concatenate([[True], np.diff(table.time // 60) > 0]))
    o, h, l, c = ticks.T  # noqa: E741
    high, low = np.maximum.reduceat(h, begins), np.minimum.reduceat(l, begins)
    close = c[np.concatenate([begins[1:], [len(c)]]) - 1]
    volume = np.rint(np.add.reduceat(table.volume, begins)).astype(np.int64)
    bars = Bars(stamp[begins], o[begins], high, low, close, volume, np.zeros(len(begins), bool))
    guess = nearer_extreme_first(bars)
    if by_minute:
        return Minutes(bars._replace(high_first=guess), begins, False)
    minute = np.cumsum(np.isin(np.arange(len(table)), begins)) - 1
    when = lambda hit: np.minimum.reduceat(np.where(hit, np.arange(len(hit)), len(hit)), begins)
    first_high, first_low = when(h == high[minute]), when(l == low[minute])
    first = np.where(first_high == first_low, guess, first_high < first_low)
    return Minutes(bars._replace(high_first=first), begins, True)


def clock(
    found: Minutes, table: Table, contract: str, session: Session, zone: str, doubts: Doubts
) -> tuple[str | None, list[str]]:
    """Doubts bars of hours when there is no trading, and an open that is not at the open; the open that was found."""
    bars, place = found.bars, session.place
    closed = _closed(bars, session)
    advice = "The times are of another clock: tell which with --zone."
    if closed.mean() > CLOSED_SHARE:
        row, share = int(found.row[np.flatnonzero(closed)[0]]), 100 * closed.mean()
        when = text(int(table.time[row]), session.zone)
        reason = f"{when} {place} time (zone {zone}): the exchange is closed then, and in {share:.1f} % of all bars"
        doubts.doubt(table, row, reason, advice)
    days = np.unique(bars.date[(bars.minute >= session.open) & (bars.minute <= session.close)])
    if not len(days):
        hours = f"{clock_time(session.open)} to {clock_time(session.close)} {place} time"
        reason = f"no bar lies in a session, {hours} (zone {zone})"
        table.refuse(int(found.row[0]), reason, advice)
    if contract not in INDICES:
        return None, [f"the clock is checked by closing hours alone: the busiest half hour of {contract} is not known"]
    busiest = _busiest(bars)
    if len(days) < LEAST_DAYS or busiest is None:
        return None, [f"the clock is checked by closing hours alone: fewer than {LEAST_DAYS} whole days"]
    if not OPEN <= busiest <= OPEN + 30:
        row = int(found.row[np.flatnonzero(bars.minute >= busiest)[0]])
        reason = (
            f"by these times the busiest half hour of the day begins at {clock_time(busiest)} in New York "
            f"(zone {zone}); of {contract} it is that of the open at {clock_time(OPEN)}"
        )
        doubts.doubt(table, row, reason, advice)
    return clock_time(busiest), []


def jumps(found: Minutes, table: Table, most: float, doubts: Doubts) -> None:
    """Doubts the first bar that lies further from the one before, or is wider, than `most` of the price."""
    share = moves(found.bars)
    if len(far := np.flatnonzero(share > most)):
        at = int(far[0])
        reason = (
            f"prices change by {100 * share[at]:.0f} %, more than the {100 * most:.0f} % that the contract can: "
            "a spread or another contract among its bars"
        )
        doubts.doubt(table, int(found.row[at]), reason, "Import a file with a column `symbol`, or leave the rows out.")


def moves(bars: Bars) -> Float64[np.ndarray, " bars"]:
    """How far each bar lies from its neighbour before, or how wide it is if that is more, in shares of the price."""
    before = np.concatenate([bars.open[:1], bars.close[:-1]]).astype(np.int64)
    near = np.concatenate([[False], np.diff(bars.stamp) <= WEEKEND])
    move = np.maximum(np.abs(bars.open - before) * near, bars.high.astype(np.int64) - bars.low)
    return move / np.maximum(np.maximum(np.abs(before), np.abs(bars.open)), _level(bars))


class Identity(NamedTuple):
    """Figures by which one contract is told from two that alternate; nan where there are too few bars."""

    autocorrelation: float  # of returns of one minute, one apart
    atr_share: float  # median average true range in shares of the price


def identity(found: Minutes, table: Table, hours: Session, doubts: Doubts) -> Identity:
    """Doubts bars whose prices jump to and fro as those of two contracts in one series do."""
    bars = found.bars
    session = (bars.minute >= hours.open) & (bars.minute < hours.open + LIVELY)
    of = bars.where(session if session.any() else np.ones_like(session))
    follows = np.diff(of.stamp) == 1
    change = np.diff(np.log(of.close)) if (of.close > 0).all() else np.diff(of.close) / _level(of)[1:]
    returns = np.where(follows, change, np.nan)
    pairs = np.stack([returns[:-1], returns[1:]])[:, follows[:-1] & follows[1:]]
    if pairs.shape[1] < LEAST_RETURNS:
        return Identity(float("nan"), float("nan"))
    spread = pairs.std(1)
    correlation = float(np.corrcoef(pairs)[0, 1]) if spread.all() else 0.0
    share = float(np.median(features.atr64(of) / 64 / np.maximum(np.abs(of.close), 1)))
    if correlation < AUTOCORRELATION or share > ATR_SHARE:
        jump = np.abs(np.diff(bars.close)) * (np.diff(bars.stamp) == 1)
        row = int(found.row[int(jump.argmax()) + 1])
        reason = (
            f"prices jump to and fro as if two contracts were mixed, most here: returns of successive minutes "
            f"correlate by {correlation:.2f} (expected above {AUTOCORRELATION}), the average true range is "
            f"{100 * share:.2f} % of the price (expected below {100 * ATR_SHARE:.1f} %)"
        )
        doubts.doubt(table, row, reason, "Keep one month per session, or import a file with a column `symbol`.")
    return Identity(correlation, share)


def _level(bars: Bars) -> np.ndarray:
    """The median price of each bar's year: what changes are measured by where a price comes near 0."""
    years, year = np.unique(bars.date.astype("datetime64[D]").astype("datetime64[Y]"), return_inverse=True)
    return np.array([np.median(np.abs(bars.close[year == i])) for i in range(len(years))])[year]


def _closed(bars: Bars, session: Session) -> np.ndarray:
    """Whether the exchange is closed: for half an hour every day, and over the weekend; abroad on Saturdays."""
    weekday = (bars.date + 3) % 7  # Monday is 0; 1970 began on a Thursday
    daily = (bars.minute >= BREAK) & (bars.minute < REOPEN)
    weekend = (weekday == 5) | ((weekday == 4) & (bars.minute >= BREAK)) | ((weekday == 6) & (bars.minute < REOPEN))
    return daily | weekend if session.here else weekday == 5


def _busiest(bars: Bars) -> int | None:
    """The minute at which the half hour of the widest bars begins, of a usual day."""
    days, day = np.unique(bars.date, return_inverse=True)
    half = bars.minute // 30
    total, count = np.zeros((len(days), 48)), np.zeros((len(days), 48))
    np.add.at(total, (day, half), (bars.high - bars.low).astype(np.float64))
    np.add.at(count, (day, half), 1)
    usual = [
        np.median(total[full, i] / count[full, i]) if (full := count[:, i] >= 20).mean() >= 0.5 else -1.0
        for i in range(48)
    ]
    return int(np.argmax(usual)) * 30 if max(usual) > 0 else None
