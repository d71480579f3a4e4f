"""Point: one value that a half computed, what it was computed from, and where."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, eq=False)
class Point:
    """A value on the way from the inputs to the results of a half."""

    number: int
    operation: str
    value: np.ndarray
    lines: tuple[str, ...] = ()  # the user's lines that led here, "file:line" each, the innermost first
    reads: tuple[int, ...] = ()  # numbers of the points it was computed from
    name: str = ""  # of an input: the parameter, buffer or leaf of the batch
    module: str = ""  # path of the torch module that computed it
    call: int = -1  # number of the torch call, several of whose results may be points

    @property
    def where(self) -> str:
        """The user's own line, or nothing."""
        return self.lines[0] if self.lines else ""


def ancestors(points: dict[int, Point], start: int) -> set[int]:
    """Everything a point was computed from, itself too."""
    found, waiting = set(), [start]
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            waiting += points[number].reads
    return found
