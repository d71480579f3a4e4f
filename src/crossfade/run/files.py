"""Files that are there whole or not at all, and readers that say what is wrong with one."""

import io
import json
import math
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RunError, UsageError
from ..failing import OS_ADVICE

ADVICE = "Restore it from a copy."


@contextmanager
def reading(path: Path, what: str) -> Iterator[BufferedReader]:
    """The regular file at `path`, open; `what` says in errors what it should be. Never waits for a pipe."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise RunError(f"{path}: expected {what}, got something that is no file. {ADVICE}")
            yield file
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RunError(f"{path}: expected {what}, got an error: {reason}. {ADVICE}") from error


def read_text(path: Path, what: str) -> str:
    """A file of text in UTF-8."""
    with reading(path, what) as file:
        data = file.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RunError(f"{path}: expected {what}, got bytes that are no text in UTF-8 ({error}). {ADVICE}") from error


def read_json(path: Path, what: str) -> Any:
    """A file of JSON."""
    try:
        return json.loads(read_text(path, what))
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: expected {what}, got no JSON: {error}. {ADVICE}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Says which file could not be written, and what to do; what was there is untouched."""
    try:
        yield
    except OSError as error:
        place = str(path) if error.filename is None else os.fsdecode(error.filename)
        advice = OS_ADVICE.get(error.errno or 0, "Choose another folder.")
        raise RunError(f"expected to write {place!r}, got: {error.strerror or error}. {advice}") from error


def write_bytes(path: Path, data: bytes) -> Path:
    """Replaces the file in one step: a reader, or a run killed meanwhile, sees the old content or the new."""
    if os.path.exists(path) and not os.path.isfile(path):
        kind = "a folder" if os.path.isdir(path) else "a device or a pipe"
        raise UsageError(f"expected the name of a file to write, got {str(path)!r}, which is {kind}.")
    scratch = path.with_name(f".{secrets.token_hex(8)}.tmp")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(scratch, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(path)
        finally:
            with suppress(OSError):
                scratch.unlink()
    return path


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> Path:
    """Strict JSON: NaN and infinity are refused, since other readers would."""
    return write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def finite(tree: Any) -> Any:
    """The same tree, ready for JSON: None in place of numbers that it has not, text in place of paths."""
    if isinstance(tree, dict):
        return {str(name): finite(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    if isinstance(tree, Path):
        return str(tree)
    if hasattr(tree, "tolist"):  # an array or a number of NumPy's
        return finite(tree.tolist())
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def strict_json(value: Any) -> str:
    """Text of JSON without NaN and infinity, which most readers refuse."""
    return json.dumps(finite(value), indent=1, allow_nan=False)


def write_array(path: Path, array: np.ndarray) -> Path:
    """One array as .npy."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return write_bytes(path, buffer.getvalue())
