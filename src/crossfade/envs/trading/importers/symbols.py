"""What a symbol names: a month of a contract, a continuous series, all its months, a spread, or another contract."""

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

CODES = "FGHJKMNQUVXZ"  # of the months of delivery, January to December
_BEFORE = re.compile(r"^(?:[A-Z_]{3,}:|[@/])")  # CME_MINI:ES1!, @ESH24, /ESH24
_BEHIND = re.compile(r"(?:_FUT)?[-_.:]X?(?:CME|CBT|CBOT|NYM|NYMEX|CMX|CEC|COMEX|GLOBEX|EUREX|ICE)$")  # ESH24-CME
_MONTH = r"[ _]?(?P<code>[{codes}])(?P<year>\d{{4}}|\d{{1,2}})"  # ESH4, ESH24, ESH2024
_NUMBERED = r" (?P<month>\d\d)-(?P<of>\d\d)"  # ES 03-24
_CONTINUOUS = r"(?:\.[A-Za-z]+\.\d+|=F|\d!| ##-##)?"  # ES.c.0, ES=F, ES1!, ES ##-##, ES


class Symbol(NamedTuple):
    """A symbol as it was understood."""

    kind: Literal["month", "continuous", "parent", "spread", "foreign", "none"]
    month: int = 0  # of delivery, 1 to 12
    year: int = 0
    digits: int = 0  # of the year as it was written; one leaves the decade open


def read(symbol: str, root: str, codes: str = CODES) -> Symbol:
    """What a symbol names, for someone who wants the contract `root`, delivered in the months of `codes`."""
    text = _BEHIND.sub("", _BEFORE.sub("", symbol.strip()))
    own = re.escape(root)
    if not text:
        return Symbol("none")
    if found := re.fullmatch(own + _MONTH.format(codes=codes), text):
        return Symbol("month", CODES.index(found["code"]) + 1, *_year(found["year"]))
    if (found := re.fullmatch(own + _NUMBERED, text)) and _delivers(int(found["month"]), codes):
        return Symbol("month", int(found["month"]), *_year(found["of"]))
    if re.fullmatch(own + _CONTINUOUS, text):
        return Symbol("continuous")
    if text == f"{root}.FUT":
        return Symbol("parent")
    if re.search("[-: ]", text) and not re.fullmatch(r"\w+" + _NUMBERED, text):
        return Symbol("spread")
    return Symbol("foreign")


def in_name(name: str, roots: Iterable[str]) -> list[tuple[str, str]]:
    """Contracts in the name of a file, each with its symbol: `ES 03-24.Last` has ES and `ES 03-24`."""
    own = "|".join(re.escape(root) for root in sorted(roots, key=len, reverse=True))
    symbol = rf"(?P<root>{own})(?:[ _]?[{CODES}]\d{{1,4}}| \d\d-\d\d|=F|\d!)?"
    found = re.finditer(rf"(?<![A-Za-z0-9]){symbol}(?![A-Za-z0-9])", name)
    return [(each["root"], each[0]) for each in found]


def _year(text: str) -> tuple[int, int]:
    """The year and its digits; two digits are of this century, from 70 on of the one before."""
    year = int(text)
    return (year + (1900 if year >= 70 else 2000) if len(text) == 2 else year), len(text)


def _delivers(month: int, codes: str) -> bool:
    return 1 <= month <= 12 and CODES[month - 1] in codes
