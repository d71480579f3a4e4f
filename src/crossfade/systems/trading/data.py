"""The bars of a trading config: the days it learns from, and those it is judged by. Framework-free.

Synthetic days are judged by days of another seed, imported ones by the last fifth of them; with `folds`, both by the
fold's block of later sessions. Sessions of several contracts are matched by date. `market=bootstrap` learns from days
resampled from those it would learn from otherwise; what is held out stays as it happened.
"""

from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int64

from ...envs.trading import bootstrap, build, splits, synthetic
from ...envs.trading.bars import Bars
from ...envs.trading.contracts import Contract, contract
from ...envs.trading.importers import store
from ...envs.trading.market import Market
from ...envs.trading.sessions import within
from ...errors import UsageError
from .config import TradingConfig

HELD_OUT = 1_000_003  # added to the seed of the days for those that are never learned from


class _Source(NamedTuple):
    """Where bars come from; bars of one source are made or read once."""

    names: tuple[str, ...]
    mode: synthetic.Mode
    days: int
    seed: int
    folder: str | None = None
    version: tuple[int, ...] = ()  # of the files in the folder


class _Part(NamedTuple):
    """Some of the days of a source."""

    source: _Source
    side: Literal["all", "learn", "judge"] = "all"
    folds: int = 0
    fold: int = 0
    embargo: int = 0
    resample: tuple[int, int] | None = None  # to so many days, by this seed


def market(config: TradingConfig) -> Market:
    """The days to learn from."""
    return _market(_part(config, "learn"), config.features, config.costs, config.storage)


def held_out(config: TradingConfig) -> Market:
    """The days to be judged by."""
    return _market(_part(config, "judge"), config.features, config.costs, config.storage)


def dates(config: TradingConfig) -> tuple[Int64[np.ndarray, " _"], ...]:
    """Days since 1970 of the bars of `held_out`, market by market."""
    found, specs = _bars(_part(config, "judge").source), config.specs
    return tuple(within(of, specs[name].session).date for name, of in found.items())


def _part(config: TradingConfig, side: Literal["learn", "judge"]) -> _Part:
    if config.data is None:
        seed = config.data_seed
        if config.folds:
            source = _Source(config.markets, config.market, config.days, seed)
            return _Part(source, side, config.folds, config.fold, config.embargo)
        days, seed = (config.days, seed) if side == "learn" else (config.eval_days, seed + HELD_OUT)
        return _Part(_Source(config.markets, config.market, days, seed))
    if config.market not in ("default", "bootstrap"):
        raise UsageError(f"data={config.data} and market={config.market} are two markets: leave one of them out.")
    folder = Path(config.data)
    files = [folder / store.file_name(name) for name in config.markets]
    version = tuple(path.stat().st_mtime_ns for path in files if path.is_file())
    source = _Source(config.markets, "default", 0, 0, str(folder), version)
    resample = (config.days, config.data_seed) if config.market == "bootstrap" and side == "learn" else None
    return _Part(source, side, config.folds, config.fold, config.embargo, resample)


@lru_cache(maxsize=4)
def _bars(source: _Source) -> dict[str, Bars]:
    if source.folder is None:
        return synthetic.bars(source.names, source.days, source.seed, source.mode)
    return store.read(Path(source.folder), source.names)


@lru_cache(maxsize=4)
def _market(part: _Part, features: build.Features, costs: bool, storage: build.Storage) -> Market:
    bars, specs = _bars(part.source), _specs(part.source)
    if part.resample:
        learned = _days(part, bars)
        whole = {name: of.where(np.isin(of.date, learned)) for name, of in bars.items()}
        bars, days = bootstrap.bars(whole, *part.resample, contracts=specs), None
    else:
        days = None if part.side == "all" else _days(part, bars)
    made = build.market(bars, features, costs, days, specs, storage)
    for array in made:
        array.flags.writeable = False  # shared by whoever asks for the same market
    return made


def _specs(source: _Source) -> dict[str, Contract]:
    if source.folder is None:
        return {name: contract(name) for name in source.names}
    return {name: store.spec(Path(source.folder), name) for name in source.names}


def _days(part: _Part, bars: dict[str, Bars]) -> Int64[np.ndarray, " days"]:
    days = build.session_days(bars, _specs(part.source))
    if part.folds:
        split = splits.walk_forward(len(days), part.folds, part.embargo)[part.fold]
    else:
        split = splits.last_part(len(days), part.embargo)
    return days[split.learn if part.side == "learn" else split.judge]
