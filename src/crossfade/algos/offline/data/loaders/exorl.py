"""ExORL's folders: an .npz for each episode, whose row t holds what led to observation t."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .....errors import DataError
from ..dataset import Dataset, from_transitions, joined
from .files import npz, shown

NEEDED = "observation", "action", "reward", "discount"


def load_exorl(paths: Sequence[Path]) -> Dataset:
    """The episodes of these files: o[:-1], action[1:], o[1:], reward[1:] and, as masks, discount[1:].

    A trajectory ends where the discount is 0, and with its file.
    """
    parts, names = [], []
    for path in paths:
        found, where = npz(path, NEEDED), shown(path)
        lengths = {name: len(x) if x.ndim else 0 for name, x in found.items()}
        if len(set(lengths.values())) != 1 or min(lengths.values()) < 2:
            told = ", ".join(f"{name} {n}" for name, n in lengths.items())
            raise DataError(f"{where}: expected arrays of one length, at least 2, got {told}. Drop that episode.")
        observation, action, reward, discount = (found[name] for name in NEEDED)
        ends = np.zeros(len(action) - 1, bool)
        ends[-1] = True
        steps = observation[:-1], action[1:], observation[1:]
        zero = discount[1:] == 0 if discount.dtype.kind in "fiub" else discount[1:]
        parts.append(from_transitions(*steps, zero, ends, reward[1:], discount[1:], where=where))
        names.append(where)
    return joined(parts, names)
