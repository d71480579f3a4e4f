"""Every checkpoint of a run on the days held out, all sessions of all markets in one compiled call.

Twin: checkpoints_torch.py.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from ....envs.trading.trading_jax import Trading
from ....nn.normalizer_jax import Statistics
from ..config import TradingConfig
from ..system_jax import System
from .record import Record
from .record_jax import stack, trade
from .stage import Stage


def records(
    config: TradingConfig, stage: Stage, parameters: Sequence[dict[str, np.ndarray]], buffers: Sequence[dict[str, Any]]
) -> list[Record]:
    """What the policy of each checkpoint did; `buffers` hold what it knew of observations."""
    policies = stack([System(config).make_policy(each) for each in parameters])
    known = stack([Statistics(**buffer["statistics"]) for buffer in buffers]) if config.normalize_observations else None
    found = trade(policies, known, Trading(config.params), stage.market, stage.settings, *stage.at, stage.n_bars)
    found = jax.device_get(found)
    return [jax.tree.map(lambda column, i=i: column[i], found) for i in range(len(parameters))]
