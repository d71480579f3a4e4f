"""Every checkpoint of a run on the days held out, one after the other. Twin: checkpoints_jax.py."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....nn.normalizer_numpy import Statistics
from ..config import TradingConfig
from ..system_torch import System
from .record import Record
from .stage import Stage


def records(
    config: TradingConfig, stage: Stage, parameters: Sequence[dict[str, np.ndarray]], buffers: Sequence[dict[str, Any]]
) -> list[Record]:
    """What the policy of each checkpoint did; `buffers` hold what it knew of observations."""
    system, found = System(config), []
    for each, buffer in zip(parameters, buffers, strict=True):
        trader = system.trader(system.make_policy(each), Statistics(**buffer["statistics"]))
        found.append(trader(config.params, stage.market, stage.settings, *stage.at, stage.n_bars))
    return found
