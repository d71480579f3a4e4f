"""Normalisation of observations. Framework-free.

    normal     (x - mean) / sqrt(var + 1e-8), with the population's variance of every number
    bounded    2 (x - min) / (max - min) - 1
    none       x; images are never normalised

Statistics are taken in float64 from the observations of all steps, and applied to next observations and to those of an
evaluation too.
"""

from typing import Any, NamedTuple

import numpy as np

from ....errors import DataError
from ..config import Normalize, OfflineConfig
from .dataset import Dataset

EPS = 1e-8
CHUNK = 1 << 16  # rows in float64 at a time


class Statistics(NamedTuple):
    """What observations are normalised by; None where they stay as they are."""

    shift: Any
    """(numbers,) float64."""
    scale: Any
    """(numbers,) float64."""

    def apply(self, x: Any) -> Any:
        """(x - shift) / scale, of an array of NumPy (in float64) or of JAX (in its own precision)."""
        if self.shift is None:
            return x
        shift, scale = (number.reshape((1,) * (x.ndim - 1) + number.shape) for number in self)
        return (x - shift) / scale


def statistics(data: Dataset, normalize: Normalize) -> Statistics:
    """The statistics of a dataset."""
    if normalize == "none" or data.observations.dtype == np.uint8:
        return Statistics(None, None)
    rows = np.arange(len(data.observations)) if data.drawable is None else data.drawable
    chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
    read = lambda chunk: data.observations[chunk].astype(np.float64)
    if normalize == "normal":
        mean = np.sum([read(chunk).sum(0) for chunk in chunks], axis=0) / len(rows)
        var = np.sum([np.square(read(chunk) - mean).sum(0) for chunk in chunks], axis=0) / len(rows)
        return Statistics(mean, np.sqrt(var + EPS))
    low = np.min([read(chunk).min(0) for chunk in chunks], axis=0)
    high = np.max([read(chunk).max(0) for chunk in chunks], axis=0)
    if (low == high).any():
        number = int(np.argmax(low == high))
        raise DataError(
            f"normalize: expected observations that vary, got {low[number]} for number {number} in every row, without "
            "bounds to scale by. Use normalize=normal, or drop that number."
        )
    return Statistics((low + high) / 2, (high - low) / 2)


def both_statistics(pretraining: Dataset, finetuning: Dataset, config: OfflineConfig) -> tuple[Statistics, Statistics]:
    """The statistics of either phase; evaluation is by those of fine-tuning.

    Published, each phase has its own (`own_statistics`); corrected, those of the data for pre-training serve both.
    """
    before = statistics(pretraining, config.normalize)
    return before, statistics(finetuning, config.normalize) if config.has("own_statistics") else before
