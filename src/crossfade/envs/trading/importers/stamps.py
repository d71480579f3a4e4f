"""Whether times are those of the start of bars or of their end: what a format says, and what the edges of sessions say.

Sessions begin and end on the half hour. Bars stamped at their start come first at 09:30 and last at 15:59, bars stamped
at their end first at 09:31 and last at 16:00.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from .options import Stamp
from .table import Table

HALF_HOUR = 1800
LEAST = 6  # edges to judge by
MOST, FEWEST = 0.6, 0.1  # of the edges that must agree, and that may differ


class Stamped(NamedTuple):
    """Rows with the times of the start of their bars, and how that was known."""

    table: Table
    stamp: Stamp
    assumed: list[str]
    warnings: list[str]


def to_start(table: Table, told: Stamp | None, own: Stamp | None, source: str) -> Stamped:
    """Times of the start, if they were those of the end: as `told`, else as the source does it (`own`), else by edges.

    A source that does otherwise than the edges say is refused: it may be another's file.
    """
    length = _length(table)
    seen, edges = _by_edges(table, length)
    assumed, warnings = [], []
    if told is None and own is not None and seen not in (None, own):
        table.refuse(
            0,
            f"by {edges} edges of sessions these are times of the {seen} of bars, while {source} writes the {own}",
            "Tell which they are: --stamp start or --stamp end.",
        )
    stamp: Stamp = told or own or seen or "start"
    if told is not None and seen not in (None, told):
        warnings.append(f"times are taken as the {told} of bars as told, but {edges} edges of sessions say the {seen}")
    elif told is None and own is not None:
        assumed.append(f"times are the {own} of bars, as {source} writes them")
    elif told is None and seen is not None:
        assumed.append(f"times are the {seen} of bars, by {edges} edges of sessions")
    elif told is None:
        warnings.append("times are taken as the start of bars, as nothing in the file tells; if not: --stamp end")
    if stamp == "end":
        table = replace(table, time=table.time - length)
    return Stamped(table, stamp, assumed, warnings)


def _length(table: Table) -> int:
    """Seconds of a bar: as long as most follow one another; of anything but seconds and minutes a minute."""
    steps = np.diff(table.time)
    length = int(np.bincount(steps[(steps > 0) & (steps <= 3600)], minlength=61).argmax())
    return length if length in (1, 60) else 60


def _by_edges(table: Table, length: int) -> tuple[Stamp | None, str]:
    """What the first and the last bars of sessions say, and how many of them: `14 of 16`."""
    gap = np.diff(table.time) >= HALF_HOUR
    first, last = table.time[1:][gap] % HALF_HOUR, table.time[:-1][gap] % HALF_HOUR
    edges = 2 * int(gap.sum())
    start = int((first == 0).sum() + (last == HALF_HOUR - length).sum())
    end = int((first == length).sum() + (last == 0).sum())
    if edges >= LEAST and start >= MOST * edges and end <= FEWEST * edges:
        return "start", f"{start} of {edges}"
    if edges >= LEAST and end >= MOST * edges and start <= FEWEST * edges:
        return "end", f"{end} of {edges}"
    return None, ""
