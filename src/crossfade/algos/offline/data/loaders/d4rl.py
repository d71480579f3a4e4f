"""D4RL's files: an HDF5 of transitions. What it calls terminals ends a task, what it calls timeouts a trajectory."""

from pathlib import Path

from ..dataset import Dataset, from_transitions
from .files import array, hdf5, shown

NEEDED = "observations", "actions", "rewards", "terminals"


def load_d4rl(path: Path, drop_unfinished: bool = False) -> Dataset:
    """Observations, actions, rewards and terminals; timeouts and next observations where there are such."""
    with hdf5(path) as file:
        found = {name: array(path, file, name) for name in NEEDED}
        found |= {name: array(path, file, name) for name in ("timeouts", "next_observations") if name in file}
    following = found.pop("next_observations", None)
    return from_transitions(**found, next_observations=following, drop_unfinished=drop_unfinished, where=shown(path))
