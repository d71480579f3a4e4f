"""Bundles written to disk: atomically, the last few kept. NumPy arrays only. POSIX.

A writer holds a lock on its temporary folder; the kernel drops it when the process dies, however it dies.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import CheckpointError
from . import manifest, tensorfile
from .folder import FILES, REPLACED, is_bundle, is_folder, is_leftover, list_bundles, step_of
from .manifest import file_name

Arrays = dict[str, np.ndarray]


def write(root: Path, step: int, sections: dict[str, Arrays], fields: dict[str, Any], keep: int | None) -> Path:
    """Writes the bundle of one step, then removes all but the `keep` highest steps (and this one)."""
    final = root / f"{step:010d}"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with _scratch(root, step) as scratch:
            with _locked(root):
                _check_place(final)  # before the work of writing; again when the bundle is put in place
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
            f"expected to write {str(final)!r}, got {error}; earlier bundles are untouched. Free some space, get the "
            f"right to write there or choose another folder, then save again."
        ) from error
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


def _check_place(final: Path) -> None:
    """A bundle is replaced, anything else is somebody's."""
    if not os.path.lexists(final):
        return
    if not is_folder(final):
        found = "a symbolic link" if final.is_symlink() else "something that is no folder"
    elif manifest.NAME not in (names := os.listdir(final)) and not FILES.issuperset(names):
        found = f"a folder with {', '.join(sorted(set(names) - FILES)[:3])}"
    else:
        return
    raise CheckpointError(
        f"{str(final)!r}: expected nothing there, or a bundle to replace, got {found}; it is untouched. Remove it or "
        f"move it away, or save to another folder."
    )


def _put_in_place(scratch: Path, final: Path) -> None:
    """Two renames; between them the bundle that is replaced stands in under its other name."""
    _check_place(final)
    replaced = final.with_name(final.name + REPLACED)
    if again := final.exists():
        final.rename(replaced)
    try:
        scratch.rename(final)
    except OSError:
        if again:
            replaced.rename(final)
        raise
    _sync_folder(final.parent)
    if again:
        with suppress(OSError):  # the save is done; the next one tries again
            _discard(replaced)


def _prune(root: Path, keep: int | None, newest: Path) -> None:
    """Removes the bundles that are too many."""
    if keep is None:
        return
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
    """Removes what dead writers left behind, and finishes or undoes a replacement they had begun.

    What cannot be removed stays: it must not stop a save.
    """
    for name in os.listdir(root):
        path, final = root / name, root / name.removesuffix(REPLACED)
        with suppress(OSError):
            if is_leftover(path) and _is_abandoned(path):
                shutil.rmtree(path)
            elif path != final and step_of(name) is not None and is_bundle(path):
                if is_bundle(final):
                    _discard(path)
                elif not os.path.lexists(final):
                    path.rename(final)


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
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
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
