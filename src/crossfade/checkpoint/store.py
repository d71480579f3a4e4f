"""A folder of bundles on disk: atomic writes, checked reads, the last few kept. NumPy arrays only. POSIX.

    runs/checkpoints/
      0000000100/             a bundle; it appears by one rename, so it is complete or absent
      0000000200/
      0000000200.replaced/    exists only while step 200 is being saved again; stands in for it meanwhile
      .tmp-...  .trash-...    being written, being removed; if their process died, the next save removes them

A writer holds a lock on its temporary folder; the kernel drops it when the process dies, however it dies.
"""

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import CheckpointError
from . import manifest, tensorfile
from .manifest import file_name

REPLACED = ".replaced"
_BUNDLE = re.compile(r"[0-9]{10,}")
_LEFTOVER = (".tmp-", ".trash-")

Arrays = dict[str, np.ndarray]


# Finding


def list_bundles(path: str | os.PathLike) -> list[Path]:
    """The complete bundles in a folder, lowest step first."""
    try:
        names = [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise CheckpointError(f"expected a folder of bundles, got {str(path)!r}: {error.strerror}.") from error
    steps = {name.removesuffix(REPLACED): Path(path, name) for name in names if name.endswith(REPLACED)}
    steps |= {name: Path(path, name) for name in names}  # a bundle in place goes before one being replaced
    return [steps[name] for name in sorted(filter(_BUNDLE.fullmatch, steps), key=int)]


def latest(path: str | os.PathLike) -> Path:
    """The complete bundle with the highest step."""
    bundles = list_bundles(path)
    if not bundles:
        raise CheckpointError(f"expected at least one complete bundle in {str(path)!r}, got none; save one first.")
    return bundles[-1]


def find(path: str | os.PathLike) -> Path:
    """`path` itself if it is a bundle, otherwise the latest bundle in it."""
    path = Path(path)
    named_like_one = path.is_dir() and _BUNDLE.fullmatch(path.name) and not list_bundles(path)
    return path if os.path.lexists(path / manifest.NAME) or named_like_one else latest(path)


# Reading


def read(path: str | os.PathLike) -> tuple[Path, dict[str, Any], dict[str, Arrays]]:
    """A bundle (or the latest in a folder), its manifest and the arrays of every section, all checked.

    A damaged bundle's error names an intact one. A bundle that a writer replaces or removes during the read is not
    damaged: then the read starts again.
    """
    while True:
        bundle = find(path)
        before = _identity(bundle)
        try:
            return bundle, *_read(bundle)
        except CheckpointError as error:
            if before is not None and _identity(bundle) == before:
                raise CheckpointError(f"{error}\n{_advice(bundle)}") from error


def _identity(folder: Path) -> tuple[int, int] | None:
    """Changes when another folder takes the place of this one, or this one is renamed."""
    try:
        found = folder.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_ctime_ns


def _read(bundle: Path) -> tuple[dict[str, Any], dict[str, Arrays]]:
    label = str(bundle / manifest.NAME)
    with _open(bundle / manifest.NAME) as file:
        size = os.fstat(file.fileno()).st_size
        if size > manifest.SIZE_LIMIT:
            raise CheckpointError(f"{label}: expected at most {manifest.SIZE_LIMIT:,} bytes, got {size:,}.")
        fields = manifest.parse(file.read(manifest.SIZE_LIMIT + 1), label)
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


def read_bytes(path: Path, expected: int | None = None) -> tuple[np.ndarray, tensorfile.Digest]:
    """A regular file's bytes in private memory, and the digest of exactly these bytes."""
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        if expected is not None and size != expected:
            raise CheckpointError(f"{path}: expected {expected:,} bytes, got {size:,}; the file was cut or extended.")
        data, sha256, filled = np.empty(size, np.uint8), hashlib.sha256(), 0
        while count := file.readinto(chunk := data.data[filled : filled + tensorfile.CHUNK]):
            sha256.update(chunk[:count])
            filled += count
    if filled != size:
        raise CheckpointError(f"{path}: expected {size:,} bytes, got {filled:,}; the file shrank while being read.")
    return data, tensorfile.Digest(size, sha256.hexdigest())


def _open(path: Path) -> BufferedReader:
    """Opens a regular file, never through a link and without waiting for a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        problem = "a symbolic link" if path.is_symlink() else f"an error: {error.strerror}"
        raise CheckpointError(f"{path}: expected a regular file, got {problem}.") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path}: expected a regular file, got something else (a folder, pipe or device).")
    return os.fdopen(descriptor, "rb")


def _advice(damaged: Path) -> str:
    """Where to go on from instead."""
    try:
        others = [b for b in list_bundles(damaged.resolve().parent) if b.name != damaged.resolve().name]
    except CheckpointError:
        others = []
    for bundle in reversed(others):
        try:
            _read(bundle)
        except CheckpointError:
            continue
        return f"The newest intact bundle beside it is {str(bundle)!r}: load that path."
    return "There is no intact bundle beside it: bring this one back from a copy."


# Writing


def write(root: Path, step: int, sections: dict[str, Arrays], fields: dict[str, Any], keep: int | None) -> Path:
    """Writes the bundle of one step, then removes all but the `keep` highest steps (and this one)."""
    final = root / f"{step:010d}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _scratch(root, step) as scratch:
            files = {}
            for section, arrays in sections.items():
                with _new_file(scratch / file_name(section)) as file:
                    files[section] = manifest.file_entry(tensorfile.write(file, arrays), arrays)
            with _new_file(scratch / manifest.NAME) as file:
                file.write(manifest.dump({**fields, "step": step, "files": files}))
            _sync_folder(scratch)
            with _locked(root):
                _put_in_place(scratch, final)
    except OSError as error:
        raise CheckpointError(
            f"expected to write {str(final)!r}, got {error}; earlier bundles are untouched. Free some space or choose "
            f"another folder, then save again."
        ) from error
    if keep is not None:
        _prune(root, keep, final)
    return final


@contextmanager
def _scratch(root: Path, step: int) -> Iterator[Path]:
    """A locked temporary folder, gone at the end unless it was renamed; leftovers of dead writers go first."""
    scratch = root / f".tmp-{step:010d}-{secrets.token_hex(8)}"
    with ExitStack() as stack:
        with _locked(root):  # so that nobody sweeps between the making of the folder and its lock
            _sweep(root)
            scratch.mkdir()
            stack.enter_context(_locked(scratch))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file, on the disk (not merely in its cache) when the block ends."""
    with open(path, "xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _put_in_place(scratch: Path, final: Path) -> None:
    replaced = final.with_name(final.name + REPLACED)
    if final.exists():
        final.rename(replaced)
    scratch.rename(final)
    _sync_folder(final.parent)
    if replaced.exists():
        _discard(replaced)


def _prune(root: Path, keep: int, newest: Path) -> None:
    try:
        with _locked(root):
            for bundle in list_bundles(root)[:-keep]:
                if bundle != newest:  # a run that went back to an earlier step must not lose what it just saved
                    _discard(bundle)
    except OSError as error:
        raise CheckpointError(
            f"saved {str(newest)!r}, but expected to remove older bundles beside it, got {error}; remove them by hand."
        ) from error


def _sweep(root: Path) -> None:
    """Removes what dead writers left behind, and finishes or undoes a replacement they had begun."""
    for name in os.listdir(root):
        step = name.removesuffix(REPLACED)
        if name.startswith(_LEFTOVER) and _is_abandoned(root / name):
            shutil.rmtree(root / name)
        elif step != name and _BUNDLE.fullmatch(step):
            if (root / step).exists():
                _discard(root / name)
            else:
                (root / name).rename(root / step)


def _discard(bundle: Path) -> None:
    """Removes a bundle; it stops being one at once, by a rename."""
    trash = bundle.with_name(f".trash-{secrets.token_hex(8)}")
    bundle.rename(trash)
    shutil.rmtree(trash)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_abandoned(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
