"""Numbers as files write them: with a decimal point or a decimal comma, and with thousands set apart."""

import re
from collections.abc import Sequence
from typing import Literal

import numpy as np

from .options import Decimal

_GROUPED = r"[+-]?\d{{1,3}}(?:(?P<s>{0})\d{{3}})(?:(?P=s)\d{{3}})*"
_SPACES = "[ '’\u00a0\u202f]"
_FORMS = {
    "point": re.compile(rf"(?:{_GROUPED.format(f'{_SPACES}|,')})(?:\.\d*)?"),
    "comma": re.compile(rf"(?:[+-]?\d+|{_GROUPED.format(f'{_SPACES}|[.]')})(?:,\d*)?"),
}
_MAY_BE_THOUSANDS = re.compile(r"[+-]?\d{1,3}[.,]\d{3}")


class NotOne(ValueError):
    """A text that is no number; holds its place."""

    def __init__(self, at: int):
        super().__init__(at)
        self.at = at


def decimal(prices: Sequence[Sequence[str]], volumes: Sequence[Sequence[str]]) -> tuple[Decimal | None, int, str]:
    """What stands before the decimals, by rows of cells; none if both readings are possible, or neither is. Then also
    the first row and cell that leave it so.

    Three digits behind a single comma may be thousands or decimals. Behind a point of a price they are decimals.
    """
    if not any("," in text for cells in prices for text in cells) and not any(
        "," in text or "." in text for cells in volumes for text in cells
    ):
        return "point", 0, ""
    seen: dict[Decimal, tuple[int, str]] = {}
    left_open: tuple[int, str] | None = None
    for row, cells in enumerate(zip(prices, volumes, strict=True)):
        for texts, doubtful in zip(cells, (",", ".,"), strict=True):
            for text in texts:
                mark = _mark(text.strip(), doubtful)
                if mark == "open":
                    left_open = left_open or (row, text)
                elif mark is not None:
                    seen.setdefault(mark, (row, text))
    if len(seen) == 2:
        return None, *max(seen.values())
    if not seen and left_open:
        return None, *left_open
    return ("comma" if "comma" in seen else "point"), 0, ""


def _mark(text: str, doubtful: str) -> Decimal | Literal["open"] | None:
    """What one number says of it; nothing if it is whole."""
    points, commas = text.count("."), text.count(",")
    if points and commas:
        return "point" if text.rindex(".") > text.rindex(",") else "comma"
    if points > 1 or commas > 1:
        return "comma" if points else "point"
    if points or commas:
        may_be = _MAY_BE_THOUSANDS.fullmatch(text) and ("." if points else ",") in doubtful
        return "open" if may_be else "point" if points else "comma"
    return None


def numbers(texts: Sequence[str], mark: Decimal) -> np.ndarray:
    """(rows,) the numbers that the texts are; NotOne at the first that is none."""
    if mark == "point":
        try:
            return np.fromiter(map(float, texts), np.float64, len(texts))
        except ValueError:
            pass  # thousands are set apart, or one of them is no number
    found = np.empty(len(texts))
    for i, text in enumerate(texts):
        try:
            found[i] = _number(text.strip(), mark)
        except ValueError:
            raise NotOne(i) from None
    return found


def _number(text: str, mark: Decimal) -> float:
    if _FORMS[mark].fullmatch(text):
        text = re.sub(rf"{_SPACES}|[{'.' if mark == 'comma' else ','}]", "", text).replace(",", ".")
    elif mark == "comma" and "." in text:
        raise ValueError(text)
    return float(text)
