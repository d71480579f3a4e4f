"""What changes in the course of a training, as data: values at knots of its progress, straight lines between them."""

from dataclasses import dataclass, fields
from itertools import groupby
from typing import Annotated, Any

from ...errors import UsageError
from ...ranges import Range, check_value, kinds, range_of

Knots = tuple[str, ...]
# What each setting may be, here and in the config; the largest are those that int32 has room for.
DRAWDOWN = Range(above=0, most=1e6)
STOP_ATR = Range(above=0, most=100)
COMMISSION = Range(0, 1e4)
FORCED = Range(0, 1, noun="a probability")


@dataclass(frozen=True)
class Curriculum:
    """For each setting knots `progress:value`, progress being the share of the schedule that is over.

    Before the first knot and after the last one the value stays. Two knots at one progress are a jump, from which on
    the second one holds. Without knots the config's own value holds throughout. What changes holds for accounts under
    way, too; forced positions are for episodes to come.
    """

    drawdown: Annotated[Knots, DRAWDOWN] = ()
    """Dollars below the highest equity at which the account is bust: `0:15000,0.5:5000,1:2500`."""
    stop_atr: Annotated[Knots, STOP_ATR] = ()
    """Distance of the stop in average true ranges."""
    commission: Annotated[Knots, COMMISSION] = ()
    """Dollars per contract and side."""
    forced: Annotated[Knots, FORCED] = ()
    """Share of the episodes that begin with a position."""

    def __post_init__(self) -> None:
        for field in fields(self):
            _check(field.name, [_read(field.name, knot) for knot in getattr(self, field.name)])

    def at(self, name: str, progress: float, otherwise: Any) -> Any:
        """The value of a setting at some progress; `otherwise` if it has no knots."""
        knots = [_read(name, knot) for knot in getattr(self, name)]
        before, after = [k for k in knots if k[0] <= progress], [k for k in knots if k[0] > progress]
        if not before or not after:
            return before[-1][1] if before else after[0][1] if after else otherwise
        (p, value), (q, next_value) = before[-1], after[0]
        return value + (next_value - value) * (progress - p) / (q - p)


def _read(name: str, knot: str) -> tuple[float, float]:
    progress, colon, value = knot.partition(":")
    try:
        if not colon:
            raise ValueError
        return float(progress), float(value)
    except ValueError as error:
        raise UsageError(
            f"curriculum.{name}: expected knots progress:value, for example 0:2,0.5:1.5, got {knot!r}."
        ) from error


def _check(name: str, knots: list[tuple[float, float]]) -> None:
    progress = [p for p, _ in knots]
    if not all(0 <= p <= 1 for p in progress) or progress != sorted(progress):
        raise UsageError(f"curriculum.{name}: expected progress from 0 to 1, in order, got {progress}.")
    if any(len(list(same)) > 2 for _, same in groupby(progress)):
        raise UsageError(f"curriculum.{name}: expected at most two knots at one progress (a jump), got {progress}.")
    for _, value in knots:
        check_value(f"curriculum.{name}", value, float, range_of(kinds(Curriculum)[name]))
