"""The safetensors format in NumPy: written in one pass with its hash, read strictly from bytes already in memory.

The files are ordinary safetensors. The library's own NumPy half is not used: it cannot read bfloat16 from bytes in
memory, and it writes a strided array (`a.T`) as if it were contiguous. Here both are right, a save copies one chunk
at a time, and a load hands out views of the one buffer whose hash was checked.
"""

import hashlib
import itertools
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from ..errors import CheckpointError

CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}
NAMES = {code: name for name, code in CODES.items()}
RESERVED = "__metadata__"
HEADER_LIMIT = 100_000_000  # the format's own limit
CHUNK = 1 << 20


@dataclass(frozen=True)
class Digest:
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of that name; bfloat16 and float8 come from `ml_dtypes`, which JAX brings along."""
    if name == "bfloat16" or name.startswith("float8_"):
        try:
            import ml_dtypes
        except ImportError as error:
            raise CheckpointError(f"expected ml_dtypes for arrays of {name}: run `pip install ml_dtypes`.") from error
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def check_writable(name: str, array: np.ndarray) -> None:
    """Raises unless the format can hold this array under this name."""
    if name == RESERVED:
        raise CheckpointError(f"expected another name than {RESERVED!r}, which safetensors reserves; rename the array.")
    if array.dtype.name not in CODES:
        raise CheckpointError(
            f"{name}: expected one of the dtypes {', '.join(CODES)}, got {array.dtype}; convert it before saving."
        )


def write(file: BinaryIO, arrays: dict[str, np.ndarray]) -> Digest:
    """Writes `arrays` and returns the digest of exactly the bytes written."""
    for name, array in arrays.items():
        check_writable(name, array)
    # Widest elements first keeps every array aligned, as the library does.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header, offset = {}, 0
    for name in order:
        end = offset + arrays[name].nbytes
        header[name] = {**describe(arrays[name]), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > HEADER_LIMIT:
        raise CheckpointError(
            f"expected a header of at most {HEADER_LIMIT:,} bytes, got {len(text):,} for {len(arrays):,} arrays; "
            f"stack small arrays into few large ones."
        )
    sha256 = hashlib.sha256()
    for chunk in itertools.chain((len(text).to_bytes(8, "little"), text), *(_chunks(arrays[name]) for name in order)):
        sha256.update(chunk)
        file.write(chunk)
    return Digest(8 + len(text) + offset, sha256.hexdigest())


def describe(array: np.ndarray) -> dict[str, Any]:
    """Dtype and shape as the header and the manifest state them."""
    return {"dtype": CODES[array.dtype.name], "shape": list(array.shape)}


def _chunks(array: np.ndarray) -> Iterator[bytes]:
    """The elements as private little-endian bytes, so that hash and file agree even if the array changes meanwhile."""
    array = np.asarray(array, array.dtype.newbyteorder("<") if array.dtype.isbuiltin != 2 else None, order="C")
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, flat.size, CHUNK):
        yield flat[start : start + CHUNK].tobytes()


def read(data: np.ndarray, label: str) -> dict[str, np.ndarray]:
    """The arrays in the bytes `data` of a safetensors file, as writable views; `label` names the file in errors."""
    header, start = _header(data, label)
    arrays, end = {}, 0
    for name, dtype, shape, (begin, stop) in sorted(
        (_entry(name, entry, label) for name, entry in header.items()), key=lambda entry: entry[3]
    ):
        size = math.prod(shape) * dtype.itemsize
        if (begin, stop) != (end, end + size):
            raise CheckpointError(
                f"{label}: expected array {name!r}, {dtype} {shape}, in bytes {end:,} to {end + size:,}, but the "
                f"header says {begin:,} to {stop:,}; the file is damaged or hostile."
            )
        end = stop
        if start + stop <= data.size:
            arrays[name] = _view(data[start + begin : start + stop], dtype, shape, f"{label}: {name!r}")
    if start + end != data.size:
        raise CheckpointError(
            f"{label}: expected {start + end:,} bytes by its own header, got {data.size:,}; the file is truncated or "
            f"has something appended."
        )
    return {name: arrays[name] for name in header}


def _view(data: np.ndarray, dtype: np.dtype, shape: tuple[int, ...], label: str) -> np.ndarray:
    try:
        array = data.view(dtype).reshape(shape)
    except ValueError as error:  # more axes, or a longer empty axis, than NumPy can have
        raise CheckpointError(f"{label}: expected a shape NumPy can hold, got {str(shape)[:80]}: {error}.") from error
    return array if array.flags.aligned else array.copy()


def _header(data: np.ndarray, label: str) -> tuple[dict[str, Any], int]:
    if data.size < 8:
        raise CheckpointError(f"{label}: expected a safetensors file, got only {data.size} bytes.")
    length = int.from_bytes(data[:8].tobytes(), "little")
    if length > min(HEADER_LIMIT, data.size - 8):
        raise CheckpointError(
            f"{label}: expected a header of at most {min(HEADER_LIMIT, data.size - 8):,} bytes in a file of "
            f"{data.size:,}, but it claims {length:,}; this is no safetensors file, or it is damaged or hostile."
        )
    header = parse_json(data[8 : 8 + length].tobytes(), f"{label}: header")
    if not isinstance(header, dict):
        raise CheckpointError(f"{label}: expected a JSON object as header, got {type(header).__name__}.")
    header.pop(RESERVED, None)
    return header, 8 + length


def _entry(name: str, entry: Any, label: str) -> tuple[str, np.dtype, tuple[int, ...], tuple[int, int]]:
    match entry:
        case {"dtype": str(code), "shape": [*shape], "data_offsets": [begin, stop]} if code in NAMES and all(
            type(n) is int and 0 <= n <= sys.maxsize for n in (*shape, begin, stop)
        ):
            return name, numpy_dtype(NAMES[code]), tuple(shape), (begin, stop)
    raise CheckpointError(
        f"{label}: expected dtype (one of {', '.join(NAMES)}), shape and data_offsets for array {name!r}, "
        f"got {str(entry)[:200]}."
    )


def parse_json(text: bytes, label: str) -> Any:
    """Strict JSON: UTF-8, no name twice, no NaN; anything else is a `CheckpointError`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"the name {next(n for n in names if names.count(n) > 1)!r} occurs twice")
        return found

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        return json.loads(text.decode(), object_pairs_hook=unique, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{label}: expected valid JSON, got: {error}. The file is damaged or hostile.") from error
