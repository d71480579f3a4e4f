"""What a user may tell about files of bars. What is not told is recognised, or assumed and reported, or refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .. import definitions
from ..contracts import Contract, contract
from .table import Table

Stamp = Literal["start", "end"]
Dates = Literal["ymd", "mdy", "dmy"]
Decimal = Literal["point", "comma"]
OffGrid = Literal["refuse", "round"]
Doubtful = Literal["refuse", "warn"]
LastRow = Literal["drop", "keep"]


@dataclass(frozen=True, kw_only=True)
class Options:
    source: str | None = None
    """Whose format it is; none recognises it by header and content."""
    zone: str | None = None
    """The clock of times that do not name one."""
    stamp: Stamp | None = None
    """Whether times are those of the start or the end of a bar; none goes by the format and edges of sessions."""
    dates: Dates | None = None
    """The order of day, month and year where digits leave it open."""
    decimal: Decimal | None = None
    """What stands before decimals where thousands may be meant."""
    last_row: LastRow = "drop"
    """What to do with a last row that has no end of line, and so may be cut off."""
    negative: bool = False
    """Whether prices may be 0 or below, as those of crude oil were in April 2020."""
    off_grid: OffGrid = "refuse"
    """What to do with prices between ticks: refuse them, or round and count them."""
    doubtful: Doubtful = "refuse"
    """What to do with bars that are possible, but not likely to be what they are called. A crash is as wild as a
    mixture of contracts."""
    contracts: Path | str | Mapping[str, Contract] | None = None
    """Contracts that are not built in: a YAML file of them, or what `definitions.load` makes of it."""

    def contract(self, name: str) -> Contract:
        """The contract of that name, one's own or one that is built in."""
        own = definitions.load(Path(self.contracts)) if isinstance(self.contracts, str | Path) else self.contracts
        return (own or {}).get(name) or contract(name)


class Doubts:
    """Bars that are possible, but not likely to be what they are called: refused, or kept with a warning."""

    def __init__(self, doubtful: Doubtful):
        self.doubtful = doubtful
        self.told: list[str] = []

    def doubt(self, table: Table, row: int, reason: str, advice: str) -> None:
        """Refuses the row, or notes the reason."""
        if self.doubtful == "refuse":
            table.refuse(row, reason, f"{advice} If it is right as it is: --doubtful warn.")
        self.told.append(f"row {table.line[row]}: {reason}")
