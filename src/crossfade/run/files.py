"""Files that are there whole or not at all."""

import io
import json
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError


def write_bytes(path: Path, data: bytes) -> Path:
    """Replaces the file in one step: a reader, or a run killed meanwhile, sees the old content or the new."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a device or a pipe"
        raise UsageError(f"expected the name of a file to write, got {str(path)!r}, which is {kind}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(scratch, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)
    return path


def write_text(path: Path, text: str) -> Path:
    return write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> Path:
    """Strict JSON: NaN and infinity are refused, since other readers would."""
    return write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_array(path: Path, array: np.ndarray) -> Path:
    """One array as .npy."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return write_bytes(path, buffer.getvalue())
