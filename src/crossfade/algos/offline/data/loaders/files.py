"""Files of data that users name: opened, or refused in words. Nothing is unpickled."""

import os
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .....errors import DataError
from .....failing import OS_ADVICE

READABLE = (
    "OGBench's .npz (observations, actions, terminals), D4RL's .hdf5 (observations, actions, rewards, terminals, "
    "timeouts), a Minari folder (data/main_data.hdf5), or a folder of ExORL's episodes (.npz of observation, action, "
    "reward, discount)"
)
ANEW = "Get it anew."
_MAGIC = {
    b"\x93NUMPY": "a single array (.npy)",
    b"\x80": "a pickle, which would run code of its author",
    b"\x1f\x8b": "a file packed by gzip",
    b"PAR1": "parquet",
    b"ARROW1": "Arrow",
}


def shown(path: str | os.PathLike[str]) -> str:
    """A path that can be printed: bytes that are no UTF-8 as \\x.."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def some(names: Any) -> str:
    """The first of many names."""
    names = [shown(name) for name in names]
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") if names else "nothing"


@contextmanager
def watched(path: Path, what: str) -> Iterator[None]:
    """Says in words what reading a file has met."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
        raise DataError(f"{shown(path)}: expected {what}, got a damaged file ({error}). {ANEW}") from error
    except MemoryError as error:
        raise DataError(f"{shown(path)}: expected {what} that fits into memory, got: {error}. Use a part.") from error
    except OSError as error:
        damaged = error.errno is None  # h5py's own
        reason = f"a damaged file ({error})" if damaged else f"an error: {error.strerror}"
        advice = ANEW if damaged else OS_ADVICE.get(error.errno or 0, "Choose another file.")
        raise DataError(f"{shown(path)}: expected {what}, got {reason}. {advice}") from error


def beginning(path: Path) -> bytes:
    """The first bytes of a regular file; never waits for a pipe."""
    with watched(path, "a file of data"), os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            unreadable(path, "something that is no file")
        found = file.read(8)
    return found if found else unreadable(path, "an empty file")


def children(folder: Path) -> list[Path]:
    """What is in a folder, by name."""
    with watched(folder, "a folder of data"):
        return sorted(folder.iterdir(), key=os.fsencode)


def unreadable(path: Path, found: str) -> NoReturn:
    """Refuses what is of no known kind."""
    raise DataError(f"{shown(path)}: expected {READABLE}, got {found}. Convert it to one of these.")


def described(head: bytes) -> str:
    """What a file seems to be by its first bytes."""
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), f"a file that begins with {head!r}")


def npz_names(path: Path) -> list[str]:
    """The arrays of an .npz."""
    with watched(path, "an .npz file"), zipfile.ZipFile(path) as bundle:
        return [name.removesuffix(".npy") for name in bundle.namelist()]


def npz(path: Path, names: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Some arrays of an .npz; the others are not read."""
    there = npz_names(path)
    missing = [name for name in names if name not in there]
    if missing:
        needed, found = ", ".join(missing), some(there)
        raise DataError(f"{shown(path)}: expected {needed} among its arrays, got {found}. Rename or add them.")
    found = {}
    with watched(path, "an .npz file"), np.load(path, allow_pickle=False) as bundle:
        for name in [*names, *(name for name in optional if name in there)]:
            try:
                found[name] = bundle[name]
            except ValueError as error:
                pickled = "Object arrays" in str(error) or "pickle" in str(error)
                reason = "pickled objects, which would run code of their author" if pickled else f"none ({error})"
                advice = "Save it as an array of numbers." if pickled else ANEW
                raise DataError(f"{shown(path)}: {name}: expected an array, got {reason}. {advice}") from error
    return found


@contextmanager
def hdf5(path: Path) -> Iterator[Mapping[str, Any]]:
    """An HDF5 file, open: arrays and groups by name."""
    try:
        import h5py
    except ImportError:
        raise DataError(
            f"{shown(path)}: HDF5 is read by h5py, which is not installed. Run `pip install 'crossfade[offline]'`."
        ) from None
    with watched(path, "an HDF5 file"), h5py.File(path, "r") as file:
        yield file


def array(path: Path, group: Mapping[str, Any], name: str) -> np.ndarray:
    """One array of an HDF5 group."""
    there = group if isinstance(group, Mapping) else {}
    item = there.get(name)
    if item is None:
        raise DataError(f"{shown(path)}: expected {name} among its arrays, got {some(there)}. Rename or add it.")
    if not hasattr(item, "dtype"):
        parts = some(item)
        raise DataError(
            f"{shown(path)}: {name}: expected one array, got a group of several ({parts}): observations and actions "
            "that are dictionaries or tuples are not read. Flatten them into one array."
        )
    if item.dtype.kind not in "fiub" or not item.shape:
        found = f"{item.dtype} of shape {item.shape}"
        raise DataError(f"{shown(path)}: {name}: expected rows of numbers, got {found}. Convert them to float32.")
    return np.asarray(item[()])
