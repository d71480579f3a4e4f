"""Landscapes over all sequences of a fixed length: drawn from a seed, or read from the user's file. NumPy only."""

import csv
import itertools
import zipfile
from pathlib import Path

import numpy as np
from jaxtyping import Float64, Int

from .... import random
from ....errors import UsageError
from ....reading import read_text
from ..checks import is_number

LARGEST = 2**24


def synthetic(length: int, n_symbols: int, coupling: float, seed: int) -> Float64[np.ndarray, " sequences"]:
    """Fields plus pairwise couplings, mapped linearly onto 0 .. 1."""
    fields, pairs = random.numpy.split(random.numpy.key(seed))
    field = random.numpy.normal(fields, (length, n_symbols), np.float64)
    pair = coupling * random.numpy.normal(pairs, (length, length, n_symbols, n_symbols), np.float64)
    letter = np.indices((n_symbols,) * length, np.int8, sparse=True)
    y = sum(field[i][letter[i]] for i in range(length))
    y = y + sum(pair[i, j][letter[i], letter[j]] for i, j in itertools.combinations(range(length), 2))
    y = np.asarray(y).reshape(-1)
    return (y - y.min()) / (y.max() - y.min())


def read(file: str, letters: str, length: int) -> Float64[np.ndarray, " sequences"]:
    """The value of every sequence; what is missing, doubled, misspelt or not a number is an error that says where."""
    path = Path(file)
    if path.suffix not in (".csv", ".npz"):
        raise UsageError(f"a landscape file ends with .csv or .npz, got {path.name}.")
    sequence, value = (_read_csv if path.suffix == ".csv" else _read_npz)(path, letters, length)
    good = np.isfinite(value) & (value >= 0)
    if not good.all():
        where = int(np.argmin(good))
        raise UsageError(
            f"{path.name}: every value must be finite and at least 0, got {value[where]} for "
            f"{_spell(sequence[where], letters)} ({(~good).sum()} such of {len(value)} rows). Rewards are powers of "
            f"the values: shift negative ones, or take their exponential."
        )
    number = sequence @ len(letters) ** np.arange(length - 1, -1, -1)
    count = np.bincount(number, minlength=len(letters) ** length)
    if (count != 1).any():
        first = int(np.flatnonzero(count != 1)[0])
        digits = [first // len(letters) ** place % len(letters) for place in range(length - 1, -1, -1)]
        raise UsageError(
            f"{path.name}: every one of the {len(count)} sequences must stand there once; {(count == 0).sum()} are "
            f"missing and {(count > 1).sum()} stand there more than once, the first such is {_spell(digits, letters)}."
        )
    y = np.empty(len(count))
    y[number] = value
    return y


def _read_csv(path: Path, letters: str, length: int) -> tuple[Int[np.ndarray, "rows length"], np.ndarray]:
    lines = read_text(path, "a CSV file of a landscape (or leave `file` out)").splitlines()
    try:
        rows = [(number, row) for number, row in enumerate(csv.reader(lines), 1) if row]
    except csv.Error as error:
        raise UsageError(f"{path.name}: expected rows sequence,value; got {error}.") from error
    if rows and not is_number(rows[0][1][-1]):
        rows = rows[1:]
    place = {letter: i for i, letter in enumerate(letters)}
    sequence, value = np.empty((len(rows), length), np.int64), np.empty(len(rows))
    for i, (number, row) in enumerate(rows):
        if len(row) != 2 or len(row[0]) != length or not set(row[0]) <= set(letters) or not is_number(row[1]):
            raise UsageError(
                f"{path.name}, line {number}: expected a sequence of {length} letters out of {letters} and a number, "
                f"separated by a comma; got {','.join(row)!r}."
            )
        sequence[i], value[i] = [place[letter] for letter in row[0]], float(row[1])
    return sequence, value


def _read_npz(path: Path, letters: str, length: int) -> tuple[Int[np.ndarray, "rows length"], np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if not isinstance(arrays, np.lib.npyio.NpzFile) or not {"sequence", "value"} <= set(arrays.files):
                raise UsageError(f"{path.name}: expected arrays `sequence` and `value`, got {arrays}.")
            sequence, value = arrays["sequence"], arrays["value"]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: expected an NPZ file of a landscape, got {error}.") from error
    if value.dtype.kind not in "iuf":
        raise UsageError(f"{path.name}: expected numbers in `value`, got {value.dtype}.")
    fits = sequence.ndim == 2 and sequence.shape == (*value.shape, length) and sequence.dtype.kind in "iu"
    if not fits or (sequence.size and not 0 <= sequence.min() <= sequence.max() < len(letters)):
        raise UsageError(
            f"{path.name}: expected integer `sequence` of shape (rows, {length}) with entries 0 .. {len(letters) - 1} "
            f"and `value` of shape (rows,); got {sequence.dtype} {sequence.shape} and {value.shape}."
        )
    return sequence.astype(np.int64), value.astype(np.float64)


def _spell(sequence, letters: str) -> str:
    return "".join(letters[i] for i in sequence)
