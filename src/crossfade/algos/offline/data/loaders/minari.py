"""Minari's folders: `data/main_data.hdf5` with a group for each episode, read without Minari."""

import json
import re
from pathlib import Path

import numpy as np

from .....errors import DataError
from ..dataset import Dataset, from_transitions, joined
from .files import ANEW, array, hdf5, shown, some, watched

EPISODE = re.compile(r"episode_(\d+)")
COLUMNS = "observations", "actions", "rewards", "terminations"


def load_minari(path: Path) -> Dataset:
    """The episodes of `main_data.hdf5`, T + 1 observations and T of the rest each; terminations end the task."""
    told = _metadata(path.parent)
    with hdf5(path) as file:
        groups = sorted((name for name in file if EPISODE.fullmatch(name)), key=lambda name: int(name[8:]))
        if not groups:
            raise DataError(f"{shown(path)}: expected groups episode_0, episode_1, .., got {some(file)}. {ANEW}")
        episodes = [[array(path, file[name], column) for column in COLUMNS] for name in groups]
    names = [f"{shown(path)}: {name}" for name in groups]
    parts = [_steps(where, *episode) for where, episode in zip(names, episodes, strict=True)]
    data = joined(parts, names)
    for field, found in (("total_episodes", len(parts)), ("total_steps", data.steps)):
        if told.get(field, found) != found:
            raise DataError(f"{shown(path)}: expected {field}={told[field]} as in metadata.json, got {found}. {ANEW}")
    return data


def _steps(
    where: str, observations: np.ndarray, actions: np.ndarray, rewards: np.ndarray, terminations: np.ndarray
) -> Dataset:
    """An episode, which ends with its group."""
    if len(observations) != len(actions) + 1:
        told = f"{len(observations)} and {len(actions)}"
        raise DataError(f"{where}: expected one observation more than actions, got {told}. {ANEW}")
    ends = np.arange(len(actions)) == len(actions) - 1
    return from_transitions(observations[:-1], actions, observations[1:], terminations, ends, rewards, where=where)


def _metadata(folder: Path) -> dict[str, object]:
    """What metadata.json tells, beside the data or above; nothing where there is none."""
    for path in (folder / "metadata.json", folder.parent / "metadata.json"):
        if path.is_file():
            with watched(path, "JSON"):
                text = path.read_bytes()
            try:
                told = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{shown(path)}: expected JSON, got none: {error}. {ANEW}") from error
            if not isinstance(told, dict):
                raise DataError(f"{shown(path)}: expected a dictionary, got {type(told).__name__}. {ANEW}")
            if told.get("data_format", "hdf5") != "hdf5":
                raise DataError(
                    f"{shown(path)}: expected data_format hdf5, got {told['data_format']!r}. Convert it with Minari."
                )
            return told
    return {}
