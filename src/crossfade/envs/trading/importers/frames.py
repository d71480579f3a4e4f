"""Bars that are in memory already: a DataFrame, or arrays by name."""

import hashlib
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ....errors import DataError
from .columns import Columns
from .formats import FORMATS, VOLUMES
from .layout import SIDES, SYMBOLS, time_columns
from .options import Options
from .reading import Read, finish
from .table import refuse
from .times import Times, Unreadable

NAME = "table"  # what its rows are said to be of; they are counted from 0


def read_table(table: Any, options: Options) -> Read:
    """The rows of a table: times in a column or in the index, open, high, low, close, volume, and symbols if any."""
    columns, ticker = _by_name(table)
    header = list(columns)
    close = "close" if "close" in columns else "last"
    sides = [*SIDES[:3], close]
    volume = next((word for word in VOLUMES if word in columns), "volume")
    time = time_columns(header)
    if missing := ([] if time else ["time"]) + [word for word in (*sides, volume) if word not in columns]:
        missing = ["close" if word == "last" else word for word in missing]
        _refuse(f"no column {', '.join(missing)}; there are {', '.join(header)}", "Add or rename them.")
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1 or 0 in lengths:
        _refuse(f"columns of lengths {sorted(lengths)}", "Expected as many values in each, at least one.")
    texts = [" ".join(parts) for parts in zip(*(_texts(columns[header[i]]) for i in time), strict=True)]
    times = None
    try:
        times = Times(texts[0])
        parsed = times.parse(texts)
    except Unreadable as error:
        like = "" if times is None or texts[error.at] == times.like else f" like {times.like!r}"
        why = f"; {error.reason}" if error.reason else ""
        refuse(NAME, error.at, f"expected a time{like}, got {texts[error.at]!r}{why}", "Mend or leave out the row.")
    n = len(texts)
    symbol = next((columns[word] for word in SYMBOLS if word in columns), None)
    numbers = [_numbers(word, columns[word]) for word in (*sides, volume)]
    found = Columns(
        line=np.arange(n),
        date=parsed.date,
        second=parsed.second,
        offset=parsed.offset,
        price=np.stack(numbers[:4], -1),
        volume=numbers[4][:, None],
        symbol=np.full(n, ticker) if symbol is None else np.array([str(x) for x in symbol]),
        instrument=np.array([str(x) for x in columns["instrument_id"]])
        if "instrument_id" in columns
        else np.full(n, ""),
        times=times,
    )
    sha256 = hashlib.sha256(np.column_stack([found.second, *numbers]).tobytes())
    return finish(NAME, found, FORMATS["csv"], "table", options)._replace(sha256=sha256.hexdigest())


def _by_name(table: Any) -> tuple[dict[str, Any], str]:
    """Columns by their names in small letters, and the ticker where they have one beside the name."""
    names = list(table) if isinstance(table, Mapping) else list(table.columns)
    levels = {tuple(map(str, name))[1] for name in names if isinstance(name, tuple) and len(name) > 1} - {""}
    if len(levels) > 1:
        _refuse(f"several tickers: {', '.join(sorted(levels))}", "Take one ticker at a time.")
    plain = lambda name: "_".join(str(name[0] if isinstance(name, tuple) else name).lower().split())
    found = {plain(name): table[name] for name in names}
    if len(found) < len(names):
        _refuse(f"a column is there twice; there are {', '.join(map(str, names))}", "Leave one of them in.")
    if not isinstance(table, Mapping) and not time_columns(list(found)) and hasattr(table, "index"):
        found = {"datetime": table.index, **found}
    return found, min(levels, default="")


def _texts(values: Any) -> list[str]:
    """Times as text: in UTC where they have a zone, as they are where they have none."""
    dtype = getattr(values, "dtype", None)
    zoned = getattr(dtype, "tz", None) or getattr(dtype, "time_zone", None)
    array = np.asarray(values, "datetime64[ns]") if zoned else np.asarray(values)
    if array.dtype.kind == "M":
        whole = (array == array.astype("datetime64[s]")).all()
        texts = np.datetime_as_string(array, "s" if whole else "ns")
        return [f"{text}Z" for text in texts] if zoned else texts.tolist()
    if array.dtype.kind == "f":
        return [f"{x:.0f}" if float(x).is_integer() else repr(float(x)) for x in array]
    return [x.isoformat(" ") if hasattr(x, "isoformat") else str(x) for x in array.tolist()]


def _refuse(reason: str, advice: str) -> NoReturn:
    """Refuses the table as a whole."""
    raise DataError(f"{NAME}: {reason}. {advice}")


def _numbers(word: str, values: Any) -> np.ndarray:
    """(rows,) float64"""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        _refuse(f"column {word}: expected numbers, got {array.dtype}", "Convert it first.")
    return array.astype(np.float64)
