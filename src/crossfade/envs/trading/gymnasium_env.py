"""Trading as a Gymnasium environment: one account, a step at a time, for the libraries that expect one.

`info["action_mask"]` and `action_masks()` hold the legal actions; what the mask forbids is executed as HOLD.
"""

from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32

from ...errors import UsageError
from .market import Market, Settings
from .params import START_NUMBERS, TradingParams
from .scalar import ScalarTrading

try:
    gymnasium: Any = import_module("gymnasium")
except ModuleNotFoundError as error:
    raise UsageError("this environment needs Gymnasium: pip install gymnasium.") from error


class TradingEnv(gymnasium.Env):
    """See `TradingParams`. An episode begins as it says, drawn at random, or where `reset`'s options say."""

    metadata = {"render_modes": []}

    def __init__(self, params: TradingParams, market: Market, settings: Settings | None = None):
        self.params, self.market = params, market
        self.account = ScalarTrading(params, market, Settings() if settings is None else settings)
        self.action_space = gymnasium.spaces.Discrete(params.n_actions)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (params.observation_dim,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, int] | None = None
    ) -> tuple[Float32[np.ndarray, " observation"], dict[str, Any]]:
        """`options={"market": m, "t": t}` begins after bar t of market m, and flat."""
        super().reset(seed=seed)
        given = options or {}
        unknown = given.keys() - {"market", "t"}
        if unknown:
            raise UsageError(f"options: expected 'market' and 't', got {sorted(unknown)}.")
        began = self.account.begin(self.np_random.random(START_NUMBERS, dtype=np.float32))
        if given:
            place = {"market": began.market, "t": began.t} | given
            self.account.reset(place["market"], place["t"])
        return self.account.observation(), {"action_mask": self.action_masks()}

    def step(
        self, action: int | np.integer
    ) -> tuple[Float32[np.ndarray, " observation"], float, bool, bool, dict[str, Any]]:
        """(observation, reward, terminated, truncated, info)."""
        outcome = self.account.step(int(action))
        info = {
            "action_mask": self.action_masks(),
            "equity": self.account.equity,
            "reason": outcome.reason,
            "result": outcome.result,
        }
        ends = bool(outcome.terminated), bool(outcome.truncated)
        return self.account.observation(), float(outcome.reward), *ends, info

    def action_masks(self) -> Bool[np.ndarray, " actions"]:
        """The legal actions, under the name that sb3-contrib's MaskablePPO asks for."""
        return self.account.mask()
