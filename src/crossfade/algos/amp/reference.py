"""The motion that is imitated, as a discriminator reads it. Framework-free."""

import numpy as np
from jaxtyping import Float

from ...errors import UsageError
from .batch import Reference
from .clips import Clip
from .features_numpy import features, transitions


def reference(clip: Clip, dtype: str) -> Reference:
    """The transitions of a clip, normalised by the mean and the deviation of its own features.

    A deviation below the skeleton's floor for it counts as that.
    """
    phi = features(clip.qpos, clip.qvel, clip.clearance, clip.skeleton)
    return from_features(phi, np.array(clip.skeleton.floors), dtype)


def from_features(phi: Float[np.ndarray, "n f"], floors: Float[np.ndarray, " f"], dtype: str) -> Reference:
    """The transitions of a motion whose features are given, row after row, with the least deviation of each."""
    if len(phi) < 2:
        raise UsageError(f"expected at least 2 rows of a reference motion, got {len(phi)}.")
    phi = phi.astype(np.float64)
    mean, deviation = phi.mean(0), np.maximum(phi.std(0), floors)
    rows = transitions(phi[:-1], phi[1:], mean, deviation)
    return Reference(*(np.ascontiguousarray(array, dtype) for array in (rows, mean, deviation)))
