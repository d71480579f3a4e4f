"""What batches are drawn from: data as networks read them, and what belongs to drawing. Framework-free."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float32

from ....errors import DataError
from ....nn.initial import Shape
from ..batch import Phase
from ..config import OfflineConfig
from .choice import augmentation
from .dataset import Dataset
from .statistics import CHUNK, Statistics

FINEST = 2.0**-23
"""Uniform float32 numbers are multiples of this."""


class Source(NamedTuple):
    """Data in the precision of the networks."""

    data: Dataset
    """Normalised; its rewards are there."""
    geometric: Any
    """(n,) float32: the probability that an offset is at most 1, at most 2, and so on; see `geometric`."""
    bounds: Any
    """(2, numbers): least and greatest number of each dimension in the data; None for images."""


def make_source(data: Dataset, statistics: Statistics, phase: Phase, config: OfflineConfig) -> Source:
    """The data of a phase, ready to be drawn from. Pre-training reads no rewards: where there are none they are 0."""
    if data.rewards is None and phase == "finetuning":
        raise DataError("rewards: expected those of a task, to fine-tune by, got data without. Relabel them.")
    augmentation(data.observations.shape[1:], phase, config)
    n, image = len(data.first), data.observations.dtype == np.uint8
    read = lambda x: x if x is None or image else _normalised(x, statistics, config.dtype)
    ready = data._replace(
        observations=read(data.observations),
        actions=data.actions.astype(config.dtype),
        rewards=np.zeros(n, config.dtype) if data.rewards is None else data.rewards.astype(config.dtype),
        masks=data.masks.astype(config.dtype),
        next_observations=read(data.next_observations),
    )
    return discounted(Source(ready, None, None if image else _bounds(ready, config.frame_stack)), config.gamma)


def discounted(source: Source, gamma: float) -> Source:
    """The same data with the offsets of goals that belong to a discount."""
    longest = int((source.data.last - source.data.first).max()) + 1
    return source._replace(geometric=geometric(gamma, longest))


def observation_shape(data: Dataset, config: OfflineConfig) -> Shape:
    """The shape of an observation as networks read it: frames are stacked along its last axis."""
    *shape, channels = data.observations.shape[1:]
    return (*shape, channels * config.frame_stack)


def geometric(gamma: float, longest: int) -> Float32[np.ndarray, " n"]:
    """P(k <= 1), P(k <= 2), .. = 1 - gamma^k of an offset k ~ Geometric(1 - gamma).

    It ends where no trajectory of the data is longer, or no uniform number as large. An offset is 1 and the number of
    entries that are at most u, so that its law is exact but for the rounding of this table.
    """
    table = np.empty(longest, np.float32)
    for k in range(1, longest + 1):
        table[k - 1] = 1.0 if gamma == 0 else -math.expm1(k * math.log(gamma))
        if table[k - 1] > 1 - FINEST:
            return table[:k]
    return table


def _normalised(x: Float32[np.ndarray, "rows numbers"], statistics: Statistics, dtype: str) -> np.ndarray:
    """In float64, some rows at a time, and rounded once."""
    out = np.empty(x.shape, dtype)
    for start in range(0, len(x), CHUNK):
        out[start : start + CHUNK] = statistics.apply(x[start : start + CHUNK])
    return out


def _bounds(data: Dataset, frames: int) -> np.ndarray:
    x = data.observations if data.drawable is None else data.observations[data.drawable]
    return np.tile(np.stack([x.min(0), x.max(0)]), (1, frames))
