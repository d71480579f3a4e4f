"""Populations of traders in one market, for `crossfade sweep trading`."""

from collections.abc import Sequence

from ..ppo_population_jax import PPOPopulation
from .config import TradingConfig
from .system_jax import System


class Population(PPOPopulation):
    """Traders that differ in seed and hyper-parameters; all see the same days, which have a seed of their own."""

    def __init__(self, configs: Sequence[TradingConfig]):
        super().__init__(configs, System)
