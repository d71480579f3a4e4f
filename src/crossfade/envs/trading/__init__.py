"""Intraday futures trading on an integer ledger of ticks, cents and minutes. `params.py` states the rules.

Importing this package imports neither a framework nor Gymnasium; `TradingEnv` loads the latter on first use.
"""

from typing import TYPE_CHECKING

from ..._lazy import lazy

if TYPE_CHECKING:
    from . import build, synthetic
    from .bars import Bars as Bars
    from .contracts import CONTRACTS as CONTRACTS, Contract as Contract
    from .gymnasium_env import TradingEnv as TradingEnv
    from .market import Market as Market, Outcome as Outcome, Settings as Settings, State as State
    from .params import (
        RULES as RULES,
        Action as Action,
        Reason as Reason,
        Rules as Rules,
        TradingParams as TradingParams,
    )

    build_market, synthetic_bars = build.market, synthetic.bars

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "Action": "params",
        "Bars": "bars",
        "CONTRACTS": "contracts",
        "Contract": "contracts",
        "Market": "market",
        "Outcome": "market",
        "RULES": "params",
        "Reason": "params",
        "Rules": "params",
        "Settings": "market",
        "State": "market",
        "TradingEnv": "gymnasium_env",
        "TradingParams": "params",
        "build_market": "build:market",
        "synthetic_bars": "synthetic:bars",
    },
)
