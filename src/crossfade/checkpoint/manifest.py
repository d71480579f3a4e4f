"""The manifest of a bundle: everything but the arrays, as JSON that carries its own hash.

The hashes find damage, not malice: whoever can write the folder can write matching hashes. What protects against
hostile files is that nothing is unpickled, file names are fixed, and every size is checked before it is believed.
"""

import functools
import hashlib
import importlib.metadata
import json
from typing import Any

import numpy as np

from .. import __version__
from ..errors import CheckpointError
from .tensorfile import Digest, describe, parse_json

SCHEMA = 1
NAME = "manifest.json"
SIZE_LIMIT = 1 << 26
SECTIONS = ("weights", "optimizer", "normalizer", "replay")
LAST_STEP = 10**18 - 1

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "schema": int,
    "sha256": str,  # of this file with 64 zeros in this place
    "step": object,  # from 0 to LAST_STEP
    "versions": dict,
    "files": dict,  # section -> {bytes, sha256, arrays: {name: {dtype, shape}}}
    "aliases": dict,  # further names of weights that are stored once (tied weights)
    "buffers": list,  # names among the weights that were given as buffers
    "optimizer": (dict, type(None)),
    "normalizer": object,
    "replay": object,
    "key": (dict, type(None)),
    "mapping": (dict, type(None)),
    "meta": dict,
}
_BLANK = "0" * 64


def file_name(section: str) -> str:
    """The file that holds a section's arrays."""
    return f"{section}.safetensors"


def file_entry(digest: Digest, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """What the manifest says about one file."""
    index = {name: describe(array) for name, array in arrays.items()}
    return {"bytes": digest.bytes, "sha256": digest.sha256, "arrays": index}


@functools.cache
def versions() -> dict[str, str]:
    """Versions of crossfade and of the frameworks installed, asked without importing them."""
    found = {"crossfade": __version__}
    for package in ("numpy", "torch", "jax"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def dump(fields: dict[str, Any]) -> bytes:
    """The file's bytes: one field per line, hash included."""
    fields = {"schema": SCHEMA, "sha256": _BLANK, "versions": versions(), **fields}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(fields[name], allow_nan=False)}" for name in _FIELDS)
    text = f"{{\n{lines}\n}}\n".encode()
    if len(text) > SIZE_LIMIT:
        raise CheckpointError(
            f"expected a manifest of at most {SIZE_LIMIT:,} bytes, got {len(text):,}; keep large things as arrays in "
            f"`replay`, not as numbers in `meta`, and stack many small arrays into few."
        )
    return text.replace(_BLANK.encode(), hashlib.sha256(text).hexdigest().encode(), 1)


def parse(text: bytes, label: str) -> dict[str, Any]:
    """The fields of a manifest, after checking schema, hash, field names and types, in this order."""
    try:
        return _checked(text, parse_json(text, label), label)
    except RecursionError as error:
        raise CheckpointError(
            f"{label}: expected values nested a few times, got far more; it is no manifest."
        ) from error


def _checked(text: bytes, fields: Any, label: str) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise CheckpointError(f"{label}: expected a JSON object, got {type(fields).__name__}; it is no manifest.")
    if type(fields.get("schema")) is not int or fields["schema"] != SCHEMA:
        made_by = fields.get("versions")
        writer = made_by.get("crossfade", "unknown") if isinstance(made_by, dict) else "unknown"
        raise CheckpointError(
            f"{label}: expected bundle schema {SCHEMA}, which crossfade {__version__} reads, got schema "
            f"{str(fields.get('schema'))[:40]!r} written by crossfade {str(writer)[:40]}; load it with that version."
        )
    stated = str(fields.get("sha256"))
    actual = hashlib.sha256(text.replace(stated.encode(), _BLANK.encode(), 1)).hexdigest()
    if stated != actual:
        raise CheckpointError(f"{label}: expected sha256 {stated[:64]}, got {actual}; it was damaged or edited.")
    wrong = [name for name in _FIELDS if name not in fields or not isinstance(fields[name], _FIELDS[name])]
    if wrong or len(fields) != len(_FIELDS):
        raise CheckpointError(
            f"{label}: expected the fields {', '.join(_FIELDS)}; missing or of the wrong type: {wrong}; unknown: "
            f"{[name[:40] for name in fields if name not in _FIELDS]}."
        )
    step = fields["step"]
    if type(step) is not int or not 0 <= step <= LAST_STEP:
        raise CheckpointError(
            f"{label}: expected a step from 0 to {LAST_STEP}, got {shortened(step)}; it was damaged or edited. Bring "
            f"it back from a copy."
        )
    _check_files(fields["files"], label)
    return fields


def shortened(value: Any, length: int = 80) -> str:
    """A value from a file as a message shows it."""
    text = repr(value)
    return text if len(text) <= length else text[:length] + "..."


def _check_files(files: dict[str, Any], label: str) -> None:
    for section, entry in files.items():
        match section, entry:
            case str(), {"bytes": int(), "sha256": str(), "arrays": dict()} if section in SECTIONS:
                continue
        raise CheckpointError(
            f"{label}: expected files among {', '.join(SECTIONS)} with bytes, sha256 and arrays, "
            f"got {section[:80]!r}: {str(entry)[:80]}."
        )
    if "weights" not in files:
        raise CheckpointError(f"{label}: expected an entry for {file_name('weights')}, got {sorted(files)}.")
