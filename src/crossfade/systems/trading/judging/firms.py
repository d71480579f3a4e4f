"""How often a trader passes the evaluation of a proprietary trading firm, and how often the account is lost on the way.

The firm's rules are data (firms.yaml, or a user's file). Days are drawn from those that were traded, in blocks; an
account goes through them until it has passed, is lost, or has run out of days. Within a day the rules see the highest
and lowest equity of every bar; which came first in a bar is not known, and a bar's high lifts the threshold only from
the next bar on.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
import yaml
from jaxtyping import Bool, Float, Int

from ....config import from_yaml
from ....envs.trading.market import Market, Settings
from ....envs.trading.params import Reason
from ....errors import UsageError
from ....ranges import Count, Finite, Positive, Range, check
from ....reading import read_text
from .record import Record

SHIPPED = Path(__file__).with_name("firms.yaml")


@dataclass(frozen=True)
class Firm:
    """The rules of one evaluation, in dollars."""

    account: Positive
    """What the account begins with."""
    target: Positive
    """Profit at the end of a day with which it is passed."""
    drawdown: Positive
    """How far below the peak equity may never come; touching it ends the account."""
    trailing: Literal["intraday", "end_of_day", "none"] = "intraday"
    """Which peak: the highest equity at any moment, the highest at the end of a day, or the beginning."""
    lock: Finite | None = None
    """Profit at which the threshold stops rising; none: it never stops."""
    daily_loss: Positive | None = None
    """Loss within a day, from its beginning, that is not allowed."""
    daily_loss_ends: Literal["day", "account"] = "day"
    """What that loss ends. A day is closed at the lowest equity of the bar in which it happened."""
    consistency: Annotated[float, Range(above=0, most=1)] | None = None
    """Largest share of the profit that the best day may have when the target counts as reached."""
    minimum_days: Count = 1
    """Days with a trade that are needed."""
    maximum_days: Count = 250
    """Days after which nothing is decided."""

    def __post_init__(self) -> None:
        check(self)


class Days(NamedTuple):
    """Equity within each day, in dollars from the day's beginning."""

    low: Float[np.ndarray, "days bars"]
    high: Float[np.ndarray, "days bars"]
    close: Float[np.ndarray, "days bars"]
    traded: Bool[np.ndarray, " days"]


class Odds(NamedTuple):
    """The shares of accounts that pass, fail, or run out of days in a firm's evaluation."""

    passed: float
    lost: float
    undecided: float
    days_to_pass: float  # mean of those that pass; NaN if none does
    days: float  # mean of all
    passed_se: float  # of the simulation alone: the days themselves are few


def load(*more: Path) -> dict[str, Firm]:
    """The firms that come along, and those of more YAML files."""
    return {name: firm for path in (SHIPPED, *more) for name, firm in read(path).items()}


def read(path: Path) -> dict[str, Firm]:
    """The firms of a YAML file: `name:` and under it the fields of `Firm`."""
    try:
        tree = yaml.safe_load(read_text(path, "a YAML file of firms"))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected YAML, got {error}") from error
    if not isinstance(tree, dict) or not all(isinstance(rules, dict) for rules in tree.values()):
        raise UsageError(f"{path}: expected `name:` and under it the rules of a firm; see {SHIPPED.name}.")
    return {str(name): _firm(rules, f"{path}, {name}") for name, rules in tree.items()}


def days(record: Record, market: Market, settings: Settings, m: np.ndarray, t: np.ndarray, day: np.ndarray) -> Days:
    """The paths of a record, accounts of the same `day` (numbered from 0) added up bar by bar. A bar that closed a
    position goes from the equity before it to the one that the fill left, at the floor as anywhere else."""
    initial = np.asarray(settings.initial_cents)
    bar = np.minimum(t + 1 + np.arange(len(record.equity))[:, None], record.state.t)
    worth = record.position * market.tick_cents[m] * record.contracts
    before = np.concatenate([np.broadcast_to(initial, (1, len(t))), record.equity[:-1]])
    closed = record.reason != Reason.NONE
    reach = lambda price: np.where(closed, before, record.equity + worth * (price[m, bar] - market.close[m, bar]))
    extremes = np.stack([reach(market.low), reach(market.high), record.equity])
    paths = np.stack([extremes.min(0), extremes.max(0), record.equity]) - initial
    total = np.zeros((day.max() + 1, 3, len(bar)))
    np.add.at(total, day, paths.transpose(2, 0, 1))
    low, high, close = total.swapaxes(0, 1) / 100
    return Days(low, high, close, np.bincount(day, record.state.trades) > 0)


def simulate(firm: Firm, of: Days, drawn: Int[np.ndarray, "accounts horizon"]) -> Odds:
    """Accounts that live through the `drawn` days, one row of them each."""
    of, breached = _cut(firm, of)
    peak_before = np.maximum.accumulate(np.concatenate([np.zeros((len(of.high), 1)), of.high[:, :-1]], 1), 1)
    falls = np.asarray(of.low - peak_before <= -firm.drawdown)  # from a peak of the same day
    fallen = np.where(falls, of.low, np.inf).min(1)
    lowest, highest, end = of.low.min(1), of.high.max(1), of.close[:, -1]
    ceiling = np.inf if firm.lock is None else firm.lock

    n, horizon = drawn.shape
    profit, peak, best, traded = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, int)
    ended, passed, lasted = np.zeros(n, bool), np.zeros(n, bool), np.full(n, min(horizon, firm.maximum_days))
    for number in range(min(horizon, firm.maximum_days)):
        today = drawn[:, number]
        threshold = np.minimum(peak - firm.drawdown, ceiling)
        lost = (profit + lowest[today] <= threshold) | breached[today]
        if firm.trailing == "intraday":
            lost |= np.any(falls, 1)[today] & (profit + fallen[today] <= ceiling)
            peak = np.maximum(peak, profit + highest[today])
        profit, best, traded = profit + end[today], np.maximum(best, end[today]), traded + of.traded[today]
        if firm.trailing == "end_of_day":
            peak = np.maximum(peak, profit)
        consistent = firm.consistency is None or best <= firm.consistency * profit
        done = (profit >= firm.target) & (traded >= firm.minimum_days) & consistent
        now = ~ended & (lost | done)
        passed |= now & ~lost
        lasted[now] = number + 1
        ended |= now
        if ended.all():
            break
    share = passed.mean()
    to_pass = float(lasted[passed].mean()) if passed.any() else float("nan")
    error = float(np.sqrt(share * (1 - share) / n))
    return Odds(
        float(share), float((ended & ~passed).mean()), float((~ended).mean()), to_pass, float(lasted.mean()), error
    )


def _cut(firm: Firm, of: Days) -> tuple[Days, Bool[np.ndarray, " days"]]:
    """The days as the daily loss limit leaves them, and which of them end the account."""
    over = np.asarray(of.low <= -(np.inf if firm.daily_loss is None else firm.daily_loss))
    if firm.daily_loss_ends == "account":
        return of, np.any(over, 1)
    count = np.cumsum(np.cumsum(over, 1) > 0, 1)  # of bars, from that of the loss on
    after, level = count > 0, np.take_along_axis(of.low, over.argmax(1)[:, None], 1)
    left = {"low": after, "high": count > 1, "close": after}
    cut = {name: np.where(gone, level, getattr(of, name)) for name, gone in left.items()}
    return of._replace(**cut), np.zeros(len(of.low), bool)


def _firm(rules: dict, source: str) -> Firm:
    missing = [name for name in ("account", "target", "drawdown") if name not in rules]
    if missing:
        raise UsageError(f"{source}: expected {', '.join(missing)}, which every firm has.")
    return from_yaml(yaml.safe_dump(rules), Firm, source=source)
