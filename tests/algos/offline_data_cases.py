"""Small data for tests of offline learning's data path."""

from typing import Any

import numpy as np

from crossfade.algos.offline.agent import Goals
from crossfade.algos.offline.config import OfflineConfig
from crossfade.algos.offline.data.dataset import Dataset, from_rows
from crossfade.algos.offline.data.source import Source, make_source
from crossfade.algos.offline.data.statistics import statistics
from crossfade.algos.offline.iql.params import IQL

LENGTHS = 4, 2, 6
"""Rows of three trajectories, s_0 .. s_T: 3, 1 and 5 steps."""


def raw(lengths=LENGTHS, numbers=2, action=2, image=False, seed=0) -> dict[str, Any]:
    """Rows as OGBench's files have them; the first number of an observation is 100 trajectory + time."""
    rng, n = np.random.default_rng(seed), sum(lengths)
    terminals = np.zeros(n, np.float32)
    terminals[np.cumsum(lengths) - 1] = 1
    if image:
        observations = rng.integers(0, 256, (n, 8, 9, 3), np.uint8)
    else:
        observations = rng.normal(size=(n, numbers)).astype(np.float32)
        observations[:, 0] = np.concatenate([100 * i + np.arange(length) for i, length in enumerate(lengths)])
    return {
        "observations": observations,
        "actions": rng.uniform(-0.9, 0.9, (n, action)).astype(np.float32),
        "terminals": terminals,
        "rewards": rng.normal(size=n).astype(np.float32),
        "masks": rng.integers(0, 2, n).astype(np.float32),
    }


def data(compact=False, **words: Any) -> Dataset:
    return from_rows(**raw(**words), compact=compact)


def source(config: OfflineConfig, dataset: Dataset | None = None, phase="finetuning") -> Source:
    dataset = data() if dataset is None else dataset
    return make_source(dataset, statistics(dataset, config.normalize), phase, config)


def with_goals(value: Goals | None = None, actor: Goals | None = None, **settings: Any) -> IQL:
    """IQL that also asks for goals, next actions, bounds or views."""
    return type("Asking", (IQL,), {"value_goals": value, "actor_goals": actor, **settings})()
