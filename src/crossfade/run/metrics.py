"""metrics.jsonl, the source of truth of a run: one JSON object per line, only ever appended to.

    {"step": 100, "env_steps": 1600, "updates": 100, "wall": 2.31, "loss": 0.52}
    {"step": 200, "env_steps": 3200, "updates": 200, "wall": 2.9, "loss": null, "nonfinite": {"loss": "nan"}}

Steps never go down; new keys may appear in any row. JSON has no NaN or infinity: such a value is written as null, and
`nonfinite` says which it was, so that strict readers work and ours gives it back. Floats are written in full.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CrossfadeError

COUNTERS = ("step", "env_steps", "updates")
NONFINITE = "nonfinite"

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


def decode(line: bytes) -> Row:
    row = json.loads(line)
    if not isinstance(row, dict) or "step" not in row:
        raise ValueError("no step")
    return row | {key: float(value) for key, value in row.pop(NONFINITE, {}).items()}


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
    os.truncate(path, end)


def _scan(path: Path) -> Iterator[tuple[int, Row]]:
    """Complete rows, each with the offset at which it ends."""
    end = 0
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            end += len(line)
            try:
                yield end, decode(line)
            except ValueError as error:
                raise CrossfadeError(
                    f"{path}, line {number}: expected a JSON object with a step, got {line[:60]!r}; the file was "
                    f"damaged. Restore it from a copy, or remove the line."
                ) from error
