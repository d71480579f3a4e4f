"""The motion that is imitated, as a discriminator reads it. Framework-free."""

import numpy as np
from jaxtyping import Float

from ...errors import UsageError
from ...random import random_numpy as random
from .batch import Reference
from .clips import Clip
from .features_numpy import features, transitions

REPEATS = 16
"""Times that a motion which holds a feature still is shown, trembling otherwise each time."""


def reference(clip: Clip, dtype: str) -> Reference:
    """The transitions of a clip, normalised by the mean and the deviation of its own features.

    The least deviation of each is the skeleton's floor for it.
    """
    phi = features(clip.qpos, clip.qvel, clip.clearance, clip.skeleton)
    return from_features(phi, np.array(clip.skeleton.floors), dtype)


def from_features(phi: Float[np.ndarray, "n f"], floors: Float[np.ndarray, " f"], dtype: str) -> Reference:
    """The transitions of a motion whose features are given, row after row, with the least deviation of each.

    A feature that is stiller than that trembles by normal numbers, up to its least deviation: no robot is as still as a
    gait by kinematics, and a discriminator would know the policy by nothing else. Those that move are as given.
    """
    if len(phi) < 2:
        raise UsageError(f"expected at least 2 rows of a reference motion, got {len(phi)}.")
    phi = phi.astype(np.float64)
    mean, spread = phi.mean(0), phi.std(0)
    deviation = np.maximum(spread, floors)
    lacking = np.sqrt(deviation**2 - spread**2)
    repeats = REPEATS if lacking.any() else 1
    shown = phi + lacking * random.normal(random.key(0), (repeats, *phi.shape), "float64")
    rows = transitions(shown[:, :-1], shown[:, 1:], mean, deviation).reshape(-1, 2 * phi.shape[1])
    return Reference(*(np.ascontiguousarray(array, dtype) for array in (rows, mean, deviation)))
