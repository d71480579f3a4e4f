"""The world of a trading config: its account, and where the first episodes begin. Framework-free."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int32

from ...algos.ppo.batch import Carry
from ...algos.ppo.config import START_NUMBERS
from ...envs.trading.market import Market, Settings, State
from ...envs.trading.trading_numpy import Trading
from ...errors import CheckpointError
from ...nn import normalizer_numpy
from ...nn.normalizer_numpy import Statistics
from ...random import random_numpy as random
from .config import TradingConfig

Ints = Int32[np.ndarray, " sessions"]
UNLIMITED = 1_000_000_000  # cents


def settings(config: TradingConfig, update: int) -> Settings:
    """The account's settings during an update, as arrays: data, so that nothing is compiled anew."""
    progress = config.progress(update)
    now = lambda name: config.curriculum.at(name, progress, getattr(config, name))
    cents = lambda dollars: UNLIMITED if dollars is None else round(100 * dollars)
    given = {
        "drawdown_cents": cents(now("drawdown")),
        "lock_cents": cents(config.lock),
        "liquidation_cents": cents(config.liquidation),
        "stop_cap_cents": cents(config.stop_cap),
        "stop_64": round(64 * now("stop_atr")),
        "commission_cents": -1 if now("commission") is None else cents(now("commission")),
        "forced": round(1024 * now("forced")),
        "forced_64": round(64 * config.forced_atr),
        "target_ratio": config.target_ratio,
        "contracts": config.contracts,
        "max_bars": config.max_bars,
    }
    values = {name: np.array(value, np.int32) for name, value in Settings(**given)._asdict().items()}
    return Settings(**{**values, "progress": np.array(progress, np.float32)})


def keys(config: TradingConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Keys of the updates, of the initial parameters and of the first episodes."""
    key, init_key, start_key = random.split(random.key(config.seed), 3)
    return key, init_key, start_key


def start(config: TradingConfig, market: Market, saved: Mapping[str, Any] | None = None) -> Carry:
    """Accounts as the first episodes begin and nothing observed yet, or all as a checkpoint holds it."""
    uniform = random.uniform(keys(config)[2], (config.n_envs, START_NUMBERS), "float32")
    fresh = Carry(
        Trading(config.params).begin(market, settings(config, 0), uniform),
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
