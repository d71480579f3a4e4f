"""OGBench's files: an .npz of rows, s_0 .. s_T of every trajectory, the last of each terminal."""

from pathlib import Path

from ..dataset import Dataset, from_rows
from .files import npz, shown

NEEDED = "observations", "actions", "terminals"


def load_ogbench(path: Path, compact: bool = False, drop_unfinished: bool = False) -> Dataset:
    """Observations, actions and terminals; rewards and masks where there are such. Other arrays are left alone."""
    found = npz(path, NEEDED, ("rewards", "masks"))
    return from_rows(**found, compact=compact, drop_unfinished=drop_unfinished, where=shown(path))
