"""The world of a trading config: its market, its account, and where the first episodes begin. Framework-free."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Int32

from ...envs.trading import build, synthetic
from ...envs.trading.market import Market, Settings, State
from ...envs.trading.trading_numpy import Trading
from ...errors import CheckpointError
from ...nn import normalizer_numpy
from ...nn.normalizer_numpy import Statistics
from ...random import random_numpy as random
from ..ppo.batch import Carry
from .config import TradingConfig

Ints = Int32[np.ndarray, " sessions"]
HELD_OUT = 1_000_003  # added to the seed of the days for those that are never learned from


def market(config: TradingConfig) -> Market:
    """The days to learn from."""
    return _market(config.markets, config.days, config.data_seed, config.market, config.features, config.costs)


def held_out(config: TradingConfig) -> Market:
    """The days to be judged by."""
    seed = config.data_seed + HELD_OUT
    return _market(config.markets, config.eval_days, seed, config.market, config.features, config.costs)


@lru_cache(maxsize=4)
def _market(names: tuple[str, ...], days: int, seed: int, mode: synthetic.Mode, features, costs: bool) -> Market:
    made = build.market(synthetic.bars(names, days, seed, mode), features, costs)
    for array in made:
        array.flags.writeable = False  # shared by whoever asks for the same market
    return made


def settings(config: TradingConfig, update: int) -> Settings:
    """The account's settings during an update, as arrays: data, so that nothing is compiled anew."""
    given = {
        "drawdown_cents": round(100 * config.drawdown),
        "stop_64": round(64 * config.stop_atr),
        "target_ratio": config.target_ratio,
        "contracts": config.contracts,
        "max_bars": config.max_bars,
    }
    if config.commission is not None:
        given["commission_cents"] = round(100 * config.commission)
    values = {name: np.array(value, np.int32) for name, value in Settings(**given)._asdict().items()}
    return Settings(**{**values, "progress": np.array(min(update / config.steps, 1.0), np.float32)})


def keys(config: TradingConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys of the updates, of the initial parameters and of the first episodes."""
    key, init_key, start_key = random.split(random.key(config.seed), 3)
    return key, init_key, start_key


def start(config: TradingConfig, market: Market, saved: Mapping[str, Any] | None = None) -> Carry:
    """Flat accounts where the first episodes begin and nothing observed yet, or all as a checkpoint holds it."""
    env, uniform = Trading(config.params), random.uniform(keys(config)[2], (config.n_envs, 2), "float32")
    fresh = Carry(
        env.reset(market, settings(config, 0), *env.draw_start(market, uniform)),
        normalizer_numpy.start(config.params.observation_dim, config.dtype),
        np.zeros(config.n_envs, config.dtype),
        np.zeros(config.n_envs, np.int32),
    )
    if saved is None:
        return fresh
    state, statistics = State(**saved["state"]), Statistics(**saved["statistics"])
    carry = Carry(state, statistics, saved["episode_return"], saved["episode_length"])
    form = lambda carry: [f"{a.dtype} {a.shape}" for a in (*carry.state, *carry.statistics, *carry[2:])]
    if form(carry) != form(fresh):
        raise CheckpointError(
            f"the checkpoint's accounts do not fit: expected {form(fresh)}, got {form(carry)}. Keep n_envs, env and "
            "dtype as they were."
        )
    return carry


def sessions(market: Market) -> tuple[Ints, Ints]:
    """The market and the first bar of every session in which an episode can begin."""
    found = []
    for m, n in enumerate(market.n_start):
        start = market.start[m, :n]
        opens = start[np.concatenate([[True], np.diff(start) > 1])]
        found.append((np.full(len(opens), m, np.int32), opens))
    m, t = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return m, t
