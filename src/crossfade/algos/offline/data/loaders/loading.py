"""One door to all kinds of files."""

import os
from pathlib import Path

from .....errors import DataError
from ..dataset import Dataset
from . import d4rl, exorl, ogbench
from .d4rl import load_d4rl
from .exorl import load_exorl
from .files import beginning, children, described, hdf5, npz_names, shown, some, unreadable
from .minari import EPISODE, load_minari
from .ogbench import load_ogbench

HDF5 = b"\x89HDF\r\n\x1a\n"
ZIP = b"PK\x03\x04"


def load(path: str | os.PathLike[str], compact: bool = False, drop_unfinished: bool = False) -> Dataset:
    """The data of a file or folder, whose kind is told by what is in it.

    `compact` stores every observation once, of OGBench's files; `drop_unfinished` leaves out a last trajectory that
    does not end, of OGBench's and D4RL's. Others have neither choice.
    """
    path = Path(path)
    if path.is_dir():
        _no_choice(path, compact, drop_unfinished)
        return _folder(path)
    head = beginning(path)
    if head.startswith(ZIP) or head.startswith(b"PK\x05\x06"):
        return _npz(path, compact, drop_unfinished)
    if not head.startswith(HDF5):
        unreadable(path, described(head))
    with hdf5(path) as file:
        names = list(file)
    if any(EPISODE.fullmatch(name) for name in names):
        _no_choice(path, compact, drop_unfinished)
        return load_minari(path)
    if not set(d4rl.NEEDED) & set(names):
        unreadable(path, f"HDF5 with {some(names)}")
    _no_choice(path, compact, False)
    return load_d4rl(path, drop_unfinished)


def _folder(path: Path) -> Dataset:
    for data in (path / "data" / "main_data.hdf5", path / "main_data.hdf5"):
        if data.is_file():
            beginning(data)
            return load_minari(data)
    there = children(path)
    episodes = [file for file in there if file.suffix == ".npz"]
    if not episodes:
        deeper = [f"{child.name}/" if child.is_dir() else child.name for child in there]
        unreadable(path, f"a folder of {some(deeper)}" if there else "an empty folder")
    for file in episodes:
        beginning(file)
    return load_exorl(episodes)


def _npz(path: Path, compact: bool, drop_unfinished: bool) -> Dataset:
    names = npz_names(path)
    if set(exorl.NEEDED) <= set(names):
        _no_choice(path, compact, drop_unfinished)
        return load_exorl([path])
    if not set(ogbench.NEEDED) & set(names):
        unreadable(path, f"an .npz of {some(names)}")
    return load_ogbench(path, compact, drop_unfinished)


def _no_choice(path: Path, compact: bool, drop_unfinished: bool) -> None:
    for name, given in (("compact", compact), ("drop_unfinished", drop_unfinished)):
        if given:
            raise DataError(f"{name}: expected False for data of this kind, got True for {shown(path)}. Leave it out.")
