"""metrics.jsonl, the source of truth of a run: one JSON object per line, only ever appended to.

    {"step": 100, "env_steps": 1600, "updates": 100, "wall": 2.31, "loss": 0.52}
    {"step": 200, "env_steps": 3200, "updates": 200, "wall": 2.9, "loss": null, "nonfinite": {"loss": "nan"}}

Steps never go down; new keys may appear in any row. JSON has no NaN or infinity: such a value is written as null, and
`nonfinite` says which it was, so that strict readers work and ours gives it back. Floats are written in full.
"""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CrossfadeError, RunError
from .files import reading, writing

COUNTERS = ("step", "env_steps", "updates")
REQUIRED = (*COUNTERS, "wall")
NONFINITE = "nonfinite"
NAMES = ("nan", "inf", "-inf")
LAST = 2**63 - 1  # no step is larger

Row = dict[str, int | float]


def scalar(key: str, value: Any) -> int | float:
    """A Python number from whatever holds one: a number, or a NumPy, JAX or torch scalar."""
    array = np.asarray(value)
    if array.shape or array.dtype.kind not in "biuf":
        raise CrossfadeError(
            f"metric {key!r}: expected one number, got shape {array.shape} of {array.dtype}; reduce it before logging."
        )
    return array.item() if array.dtype.kind == "f" else int(array)


def encode(row: Mapping[str, int | float]) -> bytes:
    """One line of the file."""
    odd = {key: str(value) for key, value in row.items() if not math.isfinite(value)}
    plain = {key: None if key in odd else value for key, value in row.items()} | ({NONFINITE: odd} if odd else {})
    return json.dumps(plain, allow_nan=False).encode() + b"\n"


def decode(line: bytes, required: Iterable[str] = ("step",)) -> Row:
    """A row from its line; ValueError tells what is wrong with it."""
    try:
        row = json.loads(line.decode(), parse_constant=_refuse)
    except RecursionError as error:
        raise ValueError("values nested too deep") from error
    if not isinstance(row, dict):
        raise ValueError(f"a {type(row).__name__}, not an object")
    odd = row.pop(NONFINITE, {})
    if not isinstance(odd, dict) or not all(row.get(key, 0) is None and odd[key] in NAMES for key in odd):
        raise ValueError(f"{NONFINITE} that does not say which values are nan, inf or -inf")
    if missing := [key for key in required if key not in row]:
        raise ValueError(f"no {', '.join(missing)}")
    for key, value in row.items():
        if key not in odd and not _is_finite(value):
            raise ValueError(f"{key} is no number: {str(value)[:40]}")
        if key in COUNTERS and (key in odd or value != int(value) or not 0 <= value <= LAST):
            raise ValueError(f"{key} is no count: {str(value)[:40]}")
    return row | {key: float(value) for key, value in odd.items()}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant}, which is not JSON")


def _is_finite(value: Any) -> bool:
    """Whether a value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 2**1023


def read_rows(path: Path) -> list[Row]:
    """Every complete row. A last line without its end was cut by a kill or is being written, and is left out."""
    return [row for _, row in _scan(path)]


def read_metrics(path: Path) -> dict[str, np.ndarray]:
    """The file as columns of equal length, NaN where a row lacks the key; counters are integers."""
    rows = read_rows(path)
    keys = dict.fromkeys(key for row in rows for key in row)
    kinds = {key: np.int64 if key in COUNTERS else np.float64 for key in keys}
    return {key: np.array([row.get(key, math.nan) for row in rows], kinds[key]) for key in keys}


def truncate(path: Path, step: int) -> None:
    """Drops every row after `step`, and a line that was cut short: what a run redoes when it goes on from `step`."""
    end = max((end for end, row in _scan(path) if row["step"] <= step), default=0)
    with writing(path):
        os.truncate(path, end)


def _scan(path: Path) -> Iterator[tuple[int, Row]]:
    """Complete rows, each with the offset at which it ends."""
    end, last = 0, 0
    with reading(path, "the metrics of a run, one JSON object per line") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") and line.startswith(b"{"):
                return
            end += len(line)
            try:
                row = decode(line, REQUIRED)
                if row["step"] < last:
                    raise ValueError(f"step {row['step']} after step {last}")
            except ValueError as error:
                raise RunError(
                    f"{path}, line {number}: expected a JSON object with {', '.join(REQUIRED)} and numbers, got "
                    f"{line[:60]!r}: {error}. The file was damaged: restore it from a copy, or remove the line."
                ) from error
            last = row["step"]
            yield end, row
