"""What arrays of transitions must be. Whatever is otherwise is refused, with its row and the reason. Framework-free."""

from typing import Any, NoReturn

import numpy as np
from jaxtyping import Bool, Float32, Shaped

from ....errors import DataError

MARGIN = 1e-5
"""Actions are held to +-(1 - MARGIN): the density of a squashed normal number has no value at +-1."""
TOLERANCE = 1e-4
"""How far beyond +-1 an action may be: what rounding has done."""
MOST_ROWS = 2**30
"""Row numbers and their sums are int32."""


def refuse(where: str, expected: str, got: str, advice: str) -> NoReturn:
    """The one form of these errors."""
    raise DataError(f"{where}: expected {expected}, got {got}. {advice}")


def observations(where: str, array: Any, field: str = "observations") -> Shaped[np.ndarray, "rows ..."]:
    """(rows, numbers) of finite floats, as float32, or images (rows, height, width, channels) of bytes."""
    array, where = _array(where, field, array), f"{where}: {field}"
    if array.dtype == np.uint8 and array.ndim == 4:
        _sized(where, array)
        return array
    if array.dtype.kind != "f":
        form = "floats, or images of bytes (uint8) with axes (rows, height, width, channels)"
        refuse(where, form, _form(array), "Convert them to float32.")
    if array.ndim != 2:
        refuse(where, "shape (rows, numbers)", _form(array), "Flatten each observation; images must be uint8.")
    _sized(where, array)
    return _finite(where, array)


def actions(where: str, array: Any, rows: int) -> Float32[np.ndarray, "rows action"]:
    """(rows, numbers) of floats in [-1, 1], held to +-(1 - MARGIN)."""
    array, where = _array(where, "actions", array), f"{where}: actions"
    if array.dtype.kind != "f":
        refuse(where, "floats", _form(array), "Agents here act by numbers in [-1, 1]; discrete actions are none.")
    if array.ndim != 2:
        refuse(where, "shape (rows, numbers)", _form(array), "A single number needs an axis too: actions[:, None].")
    same_rows(where, array, rows)
    _sized(where, array)
    checked = _finite(where, array)
    beyond = np.abs(checked).max(1) > 1 + TOLERANCE
    if beyond.any():
        row = int(np.argmax(beyond))
        number = int(np.argmax(np.abs(checked[row])))
        refuse(
            where,
            "numbers from -1 to 1",
            f"{checked[row, number]} in row {row}, number {number}",
            "Scale the actions to [-1, 1] as the environment's wrapper would.",
        )
    most = np.float32(1 - MARGIN)
    return np.clip(checked, -most, most)


def column(where: str, field: str, array: Any, rows: int) -> Float32[np.ndarray, " rows"]:
    """One finite number per row; (rows, 1) is accepted too."""
    array, where = _array(where, field, array), f"{where}: {field}"
    if array.dtype.kind not in "fiub":
        refuse(where, "numbers", _form(array), "Convert them to float32.")
    return _finite(where, _flat(where, array, rows).astype(np.float64))


def fractions(where: str, field: str, array: Any, rows: int) -> Float32[np.ndarray, " rows"]:
    """One number from 0 to 1 per row."""
    numbers = column(where, field, array, rows)
    outside = (numbers < 0) | (numbers > 1)
    if outside.any():
        row = int(np.argmax(outside))
        refuse(f"{where}: {field}", "numbers from 0 to 1", f"{numbers[row]} in row {row}", "1 lets values go on.")
    return numbers


def flags(where: str, field: str, array: Any, rows: int) -> Bool[np.ndarray, " rows"]:
    """Truth per row: bools, or numbers that are 0 or 1; (rows, 1) is accepted too."""
    numbers = column(where, field, array, rows)
    other = (numbers != 0) & (numbers != 1)
    if other.any():
        row = int(np.argmax(other))
        refuse(f"{where}: {field}", "0 or 1", f"{numbers[row]} in row {row}", "1 marks the end of a trajectory.")
    return numbers == 1


def same_rows(where: str, array: Shaped[np.ndarray, "..."], rows: int) -> None:
    """Refuses an array of another length than the observations."""
    if len(array) != rows:
        refuse(where, f"{rows} rows, as many as observations", f"{len(array)}", "All arrays have one row per step.")


def _array(where: str, field: str, array: Any) -> Shaped[np.ndarray, "..."]:
    """An array of numbers or bools, with rows."""
    where = f"{where}: {field}"
    if not isinstance(array, np.ndarray):
        refuse(where, "a NumPy array", type(array).__name__, "Convert it by np.asarray.")
    if array.dtype.kind not in "fiub":
        reason = {"O": "objects", "U": "text", "S": "text", "c": "complex numbers"}.get(array.dtype.kind, "")
        refuse(where, "numbers", f"{_form(array)}{f', {reason}' if reason else ''}", "Convert them to float32.")
    if array.ndim == 0 or len(array) == 0:
        refuse(where, "at least one row", _form(array), "There is nothing to learn from.")
    if len(array) >= MOST_ROWS:
        refuse(where, f"fewer than {MOST_ROWS} rows", f"{len(array)}", "Use a part of them.")
    return array


def _flat(where: str, array: Shaped[np.ndarray, "..."], rows: int) -> Shaped[np.ndarray, " rows"]:
    if array.ndim != 1 and array.shape != (len(array), 1):
        refuse(where, f"one number per row, shape ({rows},)", _form(array), "Choose one column.")
    same_rows(where, array, rows)
    return array.reshape(-1)


def _sized(where: str, array: Shaped[np.ndarray, "..."]) -> None:
    if 0 in array.shape:
        refuse(where, "at least one number per row", _form(array), "There is nothing to learn from.")


def _finite(where: str, array: Shaped[np.ndarray, "..."]) -> Float32[np.ndarray, "..."]:
    """Floats as float32; what is not finite then is refused."""
    with np.errstate(over="ignore"):
        checked = array.astype(np.float32)
    good = np.isfinite(checked).reshape(len(checked), -1)
    if not good.all():
        row = int(np.argmin(good.all(1)))
        number = int(np.argmin(good[row]))
        place = f"row {row}, number {number}" if array.ndim > 1 else f"row {row}"
        refuse(where, "finite numbers", f"{array[row].reshape(-1)[number]} in {place}", "Mend or drop that trajectory.")
    return checked


def _form(array: Shaped[np.ndarray, "..."]) -> str:
    return f"{array.dtype} of shape {array.shape}"
