"""Where traders are judged, and what judging gives: the days held out, whole sessions, one account for each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np
from jaxtyping import Float, Int, Int32

from ....envs.trading.market import Market, Settings
from ....envs.trading.params import TradingParams
from ....envs.trading.trading_numpy import Trading
from ....ranges import INT32, Range
from ....run.evaluation import Effort
from .. import data, world
from ..config import TradingConfig
from . import record, statistics
from .firms import Firm, load
from .record import Record

Ints = Int32[np.ndarray, " sessions"]
Trader = Callable[[TradingParams, Market, Settings, Ints, Ints, int], Record]
"""A policy at work: the record of sessions that begin after bars t of markets m, under any rules and settings."""


@dataclass(frozen=True)
class StudyEffort(Effort):
    """How much a whole evaluation computes."""

    resamples: Annotated[int, Range(2, INT32)] = 2000
    """Repeats of the bootstrap, and accounts that try a firm's evaluation."""
    block: Annotated[float, Range(least=1)] | None = None
    """Mean length of the bootstrap's blocks in days; none takes the cube root of the number of days."""
    checkpoints: bool = False
    """Judge every checkpoint that was kept, in one compiled call in the modes of JAX."""
    firms: tuple[Path, ...] = ()
    """YAML files of prop-firm rules, beside those that come along."""

    def __post_init__(self) -> None:
        super().__post_init__()
        load(*self.firms)  # a bad file is told before anything is computed

    @cached_property
    def rules(self) -> dict[str, Firm]:
        """Rules of the firms whose evaluation is tried."""
        return load(*self.firms)


@dataclass(frozen=True)
class Stage:
    """Where traders are judged: the days held out, session by session, each with a new account as it is at the end of
    training, however many days accounts live there."""

    config: TradingConfig

    @cached_property
    def market(self) -> Market:
        return data.held_out(self.config)

    @cached_property
    def settings(self) -> Settings:
        """Those of the last update, but for accounts of one day that no number of bars cuts short: a policy is judged
        session by session."""
        final, usual = world.settings(self.config, self.config.horizon), Settings()
        return final._replace(max_bars=np.array(usual.max_bars, np.int32), days=np.array(usual.days, np.int32))

    @cached_property
    def at(self) -> tuple[Ints, Ints]:
        """Market and first bar of every session."""
        return world.sessions(self.market)

    @cached_property
    def n_bars(self) -> int:
        return record.longest(self.market, *self.at)

    @cached_property
    def dates(self) -> Int[np.ndarray, " sessions"]:
        """Days since 1970."""
        of_bars = data.dates(self.config)
        return np.array([of_bars[m][t] for m, t in zip(*self.at, strict=True)])

    @cached_property
    def days(self) -> Int[np.ndarray, " days"]:
        return np.unique(self.dates)

    def trade(self, decide: record.Decide, settings: Settings | None = None, repeats: int = 1) -> Record:
        """Every session, `repeats` times, by a script."""
        m, t = (np.tile(column, repeats) for column in self.at)
        env = Trading(self.config.params)
        return record.trade(env, self.market, settings or self.settings, m, t, decide, self.n_bars)

    def dollars(self, of: Record) -> Float[np.ndarray, " accounts"]:
        """What each account earned."""
        return (of.state.balance - np.asarray(self.settings.initial_cents)) / 100

    def by_day(self, values: Float[np.ndarray, "*repeats sessions"]) -> Float[np.ndarray, "*repeats days"]:
        """Sums over the sessions of a day, of which several markets have several."""
        return values @ (self.dates[:, None] == self.days)

    def brief(self, of: Record) -> dict[str, float]:
        """The few figures by which policies are told apart."""
        daily = self.by_day(self.dollars(of))
        return {
            "per_day": float(daily.mean()),
            "sharpe": float(statistics.sharpe(daily)),
            "max_drawdown": float(statistics.max_drawdown(daily)),
            "trades_per_day": float(of.state.trades.sum() / len(daily)),
        }
