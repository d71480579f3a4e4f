"""The motion that is imitated, as a discriminator reads it. Framework-free."""

import numpy as np
from jaxtyping import Float

from ...errors import UsageError
from .batch import Reference
from .clips import Clip
from .features_numpy import FLOOR, features, transitions


def reference(clip: Clip, dtype: str) -> Reference:
    """The transitions of a clip, normalised by the mean and the deviation of its own features.

    A deviation below FLOOR counts as FLOOR.
    """
    return from_features(features(clip.qpos, clip.qvel, clip.clearance, clip.skeleton), dtype)


def from_features(phi: Float[np.ndarray, "n f"], dtype: str) -> Reference:
    """The transitions of a motion whose features are given, row after row."""
    if len(phi) < 2:
        raise UsageError(f"expected at least 2 rows of a reference motion, got {len(phi)}.")
    phi = phi.astype(np.float64)
    mean, deviation = phi.mean(0), np.maximum(phi.std(0), FLOOR)
    rows = transitions(phi[:-1], phi[1:], mean, deviation)
    return Reference(*(np.ascontiguousarray(array, dtype) for array in (rows, mean, deviation)))
