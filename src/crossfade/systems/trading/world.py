"""The account of a trading config in the course of training, and the sessions of a market. Framework-free."""

import numpy as np
from jaxtyping import Int32

from ...envs.trading.market import Market, Settings
from .config import TradingConfig

Ints = Int32[np.ndarray, " sessions"]
UNLIMITED = 1_000_000_000  # cents


def settings(config: TradingConfig, update: int) -> Settings:
    """The account's settings during an update, as arrays: data, so that nothing is compiled anew."""
    progress = config.progress(update)
    now = lambda name: config.curriculum.at(name, progress, getattr(config, name))
    cents = lambda dollars: UNLIMITED if dollars is None else round(100 * dollars)
    given = {
        "initial_cents": cents(config.balance),
        "drawdown_cents": cents(now("drawdown")),
        "lock_cents": cents(config.lock),
        "liquidation_cents": cents(config.liquidation),
        "stop_cap_cents": cents(config.stop_cap),
        "stop_64": round(64 * now("stop_atr")),
        "trail_64": round(64 * config.trail_atr),
        "break_even_64": round(64 * config.break_even_atr),
        "commission_cents": -1 if now("commission") is None else cents(now("commission")),
        "slippage": -1 if config.slippage is None else config.slippage,
        "forced": round(1024 * now("forced")),
        "forced_64": round(64 * config.forced_atr),
        "target_ratio": config.target_ratio,
        "contracts": config.contracts,
        "risk_cents": 0 if config.risk is None else cents(config.risk),
        "days": config.account_days,
        "max_bars": config.max_bars,
    }
    values = {name: np.array(value, np.int32) for name, value in Settings(**given)._asdict().items()}
    return Settings(**{**values, "progress": np.array(progress, np.float32)})


def sessions(market: Market) -> tuple[Ints, Ints]:
    """The market and the first bar of every session in which an episode can begin."""
    found = []
    for m, n in enumerate(market.n_start):
        start = market.start[m, :n]
        opens = start[np.concatenate([[True], np.diff(start) > 1])]
        found.append((np.full(len(opens), m, np.int32), opens))
    m, t = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return m, t
