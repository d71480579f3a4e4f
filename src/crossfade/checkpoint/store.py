"""Bundles read from disk, checked before they are believed. NumPy arrays only."""

import hashlib
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CheckpointError
from . import manifest, tensorfile
from .folder import as_path, find, list_bundles, step_of
from .manifest import file_name

Arrays = dict[str, np.ndarray]

_TRIES = 100  # to read a bundle that a writer replaces again and again


def read(path: str | os.PathLike) -> tuple[Path, dict[str, Any], dict[str, Arrays]]:
    """A bundle (or the latest in a folder), its manifest and the arrays of every section, all checked.

    A damaged bundle's error names an intact one. A bundle that a writer replaces or removes during the read is not
    damaged: then the read starts again.
    """
    for attempt in range(_TRIES):
        bundle = find(path)
        before = _identity(bundle)
        try:
            return bundle, *_read(bundle)
        except CheckpointError as error:
            if (before is not None and _identity(bundle) == before) or attempt == _TRIES - 1:
                raise CheckpointError(f"{error}\n{_advice(bundle)}") from error
    raise AssertionError("unreachable")


def _identity(folder: Path) -> tuple[int, int] | None:
    """Changes when another folder takes the place of this one, or this one is renamed."""
    try:
        found = os.stat(folder)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def _read(bundle: Path) -> tuple[dict[str, Any], dict[str, Arrays]]:
    label = str(bundle / manifest.NAME)
    text, _ = read_bytes(bundle / manifest.NAME, limit=manifest.SIZE_LIMIT)
    fields = manifest.parse(text.tobytes(), label)
    expected = step_of(bundle.name)
    if expected is not None and fields["step"] != expected:
        raise CheckpointError(
            f"{label}: expected step {expected}, as its folder is named, got step {fields['step']}; the folder was "
            f"renamed, or the manifest is another bundle's. Name the folder {fields['step']:010d} if it is whole."
        )
    return fields, {section: _read_section(bundle, section, entry) for section, entry in fields["files"].items()}


def _read_section(bundle: Path, section: str, entry: dict[str, Any]) -> Arrays:
    path = bundle / file_name(section)
    data, digest = read_bytes(path, entry["bytes"])
    if digest.sha256 != entry["sha256"]:
        raise CheckpointError(
            f"{path}: expected sha256 {entry['sha256'][:64]}, got {digest.sha256}; the file was damaged or changed."
        )
    arrays = tensorfile.read(data, str(path))
    index = {name: tensorfile.describe(array) for name, array in arrays.items()}
    if index != entry["arrays"]:
        odd = sorted(name for name in {*index, *entry["arrays"]} if index.get(name) != entry["arrays"].get(name))
        raise CheckpointError(
            f"{path}: expected the names, shapes and dtypes the manifest lists; these disagree: {', '.join(odd)[:400]}."
        )
    return {name: arrays[name] for name in entry["arrays"]}  # in the order they were given


def read_bytes(
    path: str | os.PathLike, expected: int | None = None, limit: int | None = None
) -> tuple[np.ndarray, tensorfile.Digest]:
    """A regular file's bytes in private memory, and the digest of exactly these bytes."""
    path = as_path(path)
    try:
        with _open(path) as file:
            size = os.fstat(file.fileno()).st_size
            if limit is not None and size > limit:
                raise CheckpointError(f"{path}: expected at most {limit:,} bytes, got {size:,}.")
            if expected is not None and size != expected:
                raise CheckpointError(
                    f"{path}: expected {expected:,} bytes, got {size:,}; the file was cut or extended."
                )
            data, sha256, filled = np.empty(size, np.uint8), hashlib.sha256(), 0
            while count := file.readinto(chunk := data.data[filled : filled + tensorfile.CHUNK]):
                sha256.update(chunk[:count])
                filled += count
    except (OSError, MemoryError) as error:
        raise CheckpointError(f"{path}: expected to read the file, got an error: {error}.") from error
    if filled != size:
        raise CheckpointError(f"{path}: expected {size:,} bytes, got {filled:,}; the file shrank while being read.")
    return data, tensorfile.Digest(size, sha256.hexdigest())


def _open(path: Path) -> BufferedReader:
    """Opens a regular file, never through a link and without waiting for a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        problem = "a symbolic link" if os.path.islink(path) else f"an error: {error.strerror}"
        raise CheckpointError(f"{path}: expected a regular file, got {problem}.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path}: expected a regular file, got something else (a folder, pipe or device).")
    return os.fdopen(descriptor, "rb")


def _advice(damaged: Path) -> str:
    """Where to go on from instead."""
    damaged = Path(os.path.realpath(damaged))
    try:
        others = [b for b in list_bundles(damaged.parent) if b.name != damaged.name]
    except CheckpointError:
        others = []
    for bundle in reversed(others):
        try:
            _read(bundle)
        except CheckpointError:
            continue
        return f"The newest intact bundle beside it is {str(bundle)!r}: load that path."
    return "There is no intact bundle beside it: bring this one back from a copy."
