"""The bars of a trading config: the days it learns from, and those it is judged by. Framework-free."""

from functools import lru_cache

import numpy as np

from ...envs.trading import build, synthetic
from ...envs.trading.market import Market
from ...envs.trading.sessions import within
from .config import TradingConfig

HELD_OUT = 1_000_003  # added to the seed of the days for those that are never learned from


def market(config: TradingConfig) -> Market:
    """The days to learn from."""
    return _market(config.markets, config.days, config.data_seed, config.market, config.features, config.costs)


def held_out(config: TradingConfig) -> Market:
    """The days to be judged by."""
    seed = config.data_seed + HELD_OUT
    return _market(config.markets, config.eval_days, seed, config.market, config.features, config.costs)


def dates(config: TradingConfig) -> tuple[np.ndarray, ...]:
    """Days since 1970 of the bars of `held_out`, market by market."""
    bars = synthetic.bars(config.markets, config.eval_days, config.data_seed + HELD_OUT, config.market)
    return tuple(within(of).date for of in bars.values())


@lru_cache(maxsize=4)
def _market(names: tuple[str, ...], days: int, seed: int, mode: synthetic.Mode, features, costs: bool) -> Market:
    made = build.market(synthetic.bars(names, days, seed, mode), features, costs)
    for array in made:
        array.flags.writeable = False  # shared by whoever asks for the same market
    return made
