"""Imported bars on disk: one safetensors file per contract in a folder, the report beside it as JSON."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save as to_bytes

from ....errors import DataError, UsageError, nearest
from ....run.files import write_bytes, write_json
from .. import definitions
from ..bars import Bars
from ..contracts import CONTRACTS, Contract, contract
from . import Imported, merging

DTYPES = dict(zip(Bars._fields, ("int64", "int32", "int32", "int32", "int32", "int64", "bool"), strict=True))


def save(folder: Path, name: str, imported: Imported, *, replace: bool = False, merge: bool = False) -> Path:
    """Writes bars, with their hash and their contract, and the report; each is there whole or not at all.

    Other bars of the same contract are overwritten only with `replace`; with `merge` both are kept, if they say the
    same where they overlap.
    """
    path, bars = folder / file_name(name), imported.bars
    if path.exists() and not replace and digest(old := _bars(path)) != digest(bars):
        if not merge:
            raise UsageError(
                f"{path}: expected no bars of {name}, or the same ones; there are {_span(old)}, and these are "
                f"{_span(bars)}. Add them by --merge, replace the old ones by --replace, or use another folder by --to."
            )
        imported = merging.merge(old, report(folder, name), spec(folder, name), imported, str(path))
        bars = imported.bars
    columns = {field: np.ascontiguousarray(x) for field, x in bars._asdict().items()}
    definition = {} if name in CONTRACTS else {"contract": json.dumps(definitions.fields(imported.contract))}
    write_bytes(path, to_bytes(columns, {"sha256": digest(bars), **definition}))
    write_json(path.with_suffix(".json"), {**imported.report.json(), "sha256": digest(bars)})
    return path


def spec(folder: Path, name: str) -> Contract:
    """The contract of that name: one that is built in, or the one whose bars are in the folder."""
    path = folder / file_name(name)
    if name in CONTRACTS or not path.is_file():
        return contract(name)
    try:
        with safe_open(path, "numpy") as file:
            told = (file.metadata() or {}).get("contract", "")
        fields = json.loads(told)
    except (SafetensorError, ValueError) as error:
        raise DataError(f"{path}: expected bars with their contract, got none ({error}). Import them anew.") from None
    if not isinstance(fields, dict):
        raise DataError(f"{path}: expected a contract, got {type(fields).__name__}. Import the bars anew.")
    return definitions.read(name, fields, str(path))


def digest(bars: Bars) -> str:
    """SHA-256 over the columns: equal for equal bars, whatever file they came from."""
    found = hashlib.sha256()
    for field, column in bars._asdict().items():
        found.update(f"{field} {column.dtype} {len(column)} ".encode())
        found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()


def _span(bars: Bars) -> str:
    first, last = (np.datetime64(int(stamp), "m") for stamp in bars.stamp[[0, -1]])
    return f"{len(bars.stamp)} from {first} to {last}"


def names(folder: Path) -> list[str]:
    """Contracts of which the folder has bars."""
    return sorted(path.stem for path in folder.glob("*.safetensors"))


def read(folder: Path, wanted: Sequence[str]) -> dict[str, Bars]:
    """The bars of the wanted contracts."""
    found = {}
    for name in wanted:
        path = folder / file_name(name)
        if not path.is_file():
            there = names(folder)
            raise UsageError(
                f"{folder}: no bars of {name}.{nearest(name, there)} There are {', '.join(there) or 'none'}; import "
                f"some with `crossfade data import FILE --contract {name} --to {folder}`."
            )
        found[name] = _bars(path)
    return found


def report(folder: Path, name: str) -> dict:
    """The report of an import, as plain values."""
    return json.loads((folder / f"{name}.json").read_text())


def file_name(name: str) -> str:
    """The name of a contract's file; a name that no contract can have is refused."""
    if not definitions.NAME.fullmatch(name):
        contract(name)
    return f"{name}.safetensors"


def _bars(path: Path) -> Bars:
    """Bars from a file, which is not trusted to hold any."""
    try:
        columns = load(path.read_bytes())
    except SafetensorError as error:
        raise DataError(f"{path}: expected a safetensors file, got a damaged one ({error}). Import it anew.") from None
    form = {name: str(column.dtype) for name, column in columns.items()}
    lengths = {column.shape for column in columns.values()}
    if form != DTYPES or len(lengths) != 1 or len(lengths.pop()) != 1:
        raise DataError(f"{path}: expected columns {DTYPES} of one length, got {form}. Import it anew.")
    bars = Bars(**columns)
    with safe_open(path, "numpy") as file:
        told = (file.metadata() or {}).get("sha256")
    if told is not None and told != digest(bars):
        raise DataError(f"{path}: expected bars with the hash {told[:16]}..., got others. Import it anew.")
    sound = bars.low <= np.minimum(bars.open, bars.close)
    sound &= bars.high >= np.maximum(bars.open, bars.close)
    sound &= np.concatenate([[True], np.diff(bars.stamp) > 0])
    if not sound.all():
        row = int(np.flatnonzero(~sound)[0])
        raise DataError(f"{path}: bar {row} is out of order or outside its own range. Import it anew.")
    return bars
