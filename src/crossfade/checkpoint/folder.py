"""A folder of bundles on disk, and which of the things in it are ours.

    runs/checkpoints/
      0000000100/             a bundle; it appears by one rename, so it is complete or absent
      0000000200/
      0000000200.replaced/    exists only while step 200 is being saved again; stands in for it meanwhile
      .tmp-...  .trash-...    being written, being removed; if their process died, the next save removes them

Whatever else lies there is left alone: files, links, and folders with such a name that hold other things.
"""

import os
import re
import stat
from pathlib import Path

from ..errors import CheckpointError
from . import manifest

REPLACED = ".replaced"
FILES = frozenset((manifest.NAME, *map(manifest.file_name, manifest.SECTIONS)))
_BUNDLE = re.compile(r"[0-9]{10,18}")
_LEFTOVER = re.compile(r"\.tmp-[0-9]{10,18}-[0-9a-f]+|\.trash-[0-9a-f]+")


def as_path(path: str | os.PathLike) -> Path:
    """The path, if the system can have a file of that name."""
    try:
        if b"\0" in os.fsencode(path):
            raise ValueError("a zero byte")
    except ValueError as error:
        raise CheckpointError(f"expected the path of a file or folder, got {path!r}: {error}.") from error
    return Path(path)


def step_of(name: str) -> int | None:
    """The step of the bundle that a folder of this name holds; None if the name is no bundle's."""
    name = name.removesuffix(REPLACED)
    return int(name) if _BUNDLE.fullmatch(name) else None


def is_leftover(path: Path) -> bool:
    """Whether a writer of ours made this folder on its way."""
    return bool(_LEFTOVER.fullmatch(path.name)) and is_folder(path)


def is_folder(path: Path) -> bool:
    """True for a folder, not for a link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def is_bundle(path: Path) -> bool:
    """Whether a folder named like a bundle is one, damaged or not."""
    return step_of(path.name) is not None and is_folder(path) and _holds_bundle(path)


def _holds_bundle(path: Path) -> bool:
    """Whether a folder is empty or holds files of a bundle. One that has just gone or cannot be looked into counts."""
    try:
        names = os.listdir(path)
    except OSError:
        return True
    return not names or not FILES.isdisjoint(names)


def list_bundles(path: str | os.PathLike) -> list[Path]:
    """The complete bundles in a folder, lowest step first."""
    path = as_path(path)
    try:
        with os.scandir(path) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError as error:
        raise CheckpointError(
            f"expected a folder of bundles, got {str(path)!r}: {error.strerror}. Give the folder that was saved to."
        ) from error
    found = sorted(name for name in names if step_of(name) is not None and _holds_bundle(path / name))
    bundles = {name.removesuffix(REPLACED): path / name for name in reversed(found)}  # one in place goes before another
    return [bundles[name] for name in sorted(bundles, key=int)]


def latest(path: str | os.PathLike) -> Path:
    """The complete bundle with the highest step."""
    bundles = list_bundles(path)
    if not bundles:
        raise CheckpointError(f"expected at least one complete bundle in {str(path)!r}, got none; save one first.")
    return bundles[-1]


def find(path: str | os.PathLike) -> Path:
    """`path` itself if it is a bundle, otherwise the latest bundle in it."""
    path = as_path(path)
    return path if os.path.lexists(path / manifest.NAME) or is_bundle(path) else latest(path)
