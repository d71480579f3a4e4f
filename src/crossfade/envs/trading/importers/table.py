"""Rows of files of bars as arrays, each of which still knows the file and the line it came from."""

from dataclasses import dataclass, fields, replace
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from ....errors import DataError

Keep = Bool[np.ndarray, " rows"]


@dataclass(frozen=True)
class Table:
    """Rows as the files have them, times apart: these are seconds since 1970 in UTC at the start of the bar."""

    names: tuple[str, ...]  # of the files
    file: Int32[np.ndarray, " rows"]  # index into `names`
    line: Int64[np.ndarray, " rows"]  # counted from 1, header included
    time: Int64[np.ndarray, " rows"]
    price: Float64[np.ndarray, "rows 4"]  # open, high, low, close in points
    volume: Float64[np.ndarray, " rows"]
    symbol: np.ndarray  # (rows,) text; empty where the file has no such column
    instrument: np.ndarray  # (rows,) text, likewise

    def __len__(self) -> int:
        return len(self.time)

    def where(self, keep: Keep | Int64[np.ndarray, " kept"]) -> "Table":
        """Some of the rows, by mask or by index."""
        columns = (f.name for f in fields(self) if f.name != "names")
        return replace(self, **{name: getattr(self, name)[keep] for name in columns})

    def refuse(self, row: int, reason: str, advice: str) -> NoReturn:
        """Says which row of which file makes the data useless, why, and what to do."""
        refuse(self.names[self.file[row]], int(self.line[row]), reason, advice)

    def refuse_where(self, bad: Any, reason: str, advice: str) -> None:
        """Refuses the first row for which `bad` holds, if there is one; `{high}` in the reason is that row's."""
        if len(rows := np.flatnonzero(bad)):
            row = int(rows[0])
            sides = dict(zip(("open", "high", "low", "close"), self.price[row], strict=True))
            more = f" ({len(rows)} such rows)" if len(rows) > 1 else ""
            self.refuse(row, reason.format(**sides, volume=self.volume[row]) + more, advice)


def refuse(name: str, line: int, reason: str, advice: str) -> NoReturn:
    raise DataError(f"{name}: row {line}: {reason}. {advice}")


def join(tables: list[Table]) -> Table:
    """The rows of several tables in order of time; rows of one time keep the order of the tables."""
    offsets = np.cumsum([0, *(len(table.names) for table in tables)])
    columns = {
        f.name: np.concatenate([getattr(table, f.name) for table in tables])
        for f in fields(Table)
        if f.name not in ("names", "file")
    }
    file = np.concatenate([t.file + np.int32(offset) for t, offset in zip(tables, offsets[:-1], strict=True)])
    whole = Table(names=tuple(name for table in tables for name in table.names), file=file, **columns)
    return whole.where(np.argsort(whole.time, kind="stable"))
