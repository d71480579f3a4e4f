"""Accounts as objects, each stepped on its own in plain Python: mode `torch`, as vectorised environments hold them."""

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from ...envs.trading.market import Market, Settings, State
from ...envs.trading.params import TradingParams
from ...envs.trading.scalar import ScalarTrading
from ...envs.world import BareOutcome


class Accounts:
    """`envs.world.Envs` of a list of accounts."""

    def __init__(self, params: TradingParams, market: Market, settings: Settings, state: State):
        plain = Settings(*(np.asarray(value).item() for value in settings))
        self.accounts = [ScalarTrading(params, market, plain) for _ in state.t]
        for account, *row in zip(self.accounts, *state, strict=True):
            account.resume(State(*map(int, row)))

    @property
    def state(self) -> State:
        return State(*np.array([account.state for account in self.accounts], np.int32).T)

    def observe(self) -> Float[np.ndarray, "envs o"]:
        return np.stack([account.observation() for account in self.accounts])

    def mask(self) -> Bool[np.ndarray, "envs a"]:
        return np.stack([account.mask() for account in self.accounts])

    def step(self, action: Int[np.ndarray, " envs"]) -> BareOutcome:
        outcomes = [account.step(int(a)) for account, a in zip(self.accounts, action, strict=True)]
        reward, terminated, truncated, *_ = zip(*outcomes, strict=True)
        return BareOutcome(np.array(reward, np.float32), np.array(terminated, bool), np.array(truncated, bool))

    def restart(self, where: Bool[np.ndarray, " envs"], uniform: Float32[np.ndarray, "envs 5"]) -> None:
        for i in np.flatnonzero(where):
            self.accounts[i].begin(uniform[i])
