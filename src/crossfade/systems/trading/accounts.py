"""Accounts that PPO steps together: as arrays, or as a list of objects, each stepped on its own (mode `torch`)."""

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from ...envs.trading.market import Market, Settings, State
from ...envs.trading.params import TradingParams
from ...envs.trading.scalar import ScalarTrading
from ...envs.trading.trading_numpy import Trading

Actions = Int[np.ndarray, " envs"]
Flags = Bool[np.ndarray, " envs"]
Stepped = tuple[Float[np.ndarray, " envs"], Flags, Flags]


class Together:
    """Accounts as arrays."""

    def __init__(self, params: TradingParams, market: Market, settings: Settings, state: State):
        self.env, self.market, self.settings, self.state = Trading(params), market, settings, state

    def observe(self) -> Float[np.ndarray, "envs o"]:
        return self.env.observe(self.market, self.settings, self.state)

    def mask(self) -> Bool[np.ndarray, "envs a"]:
        return self.env.mask(self.market, self.settings, self.state)

    def step(self, action: Actions) -> Stepped:
        self.state, outcome = self.env.step(self.market, self.settings, self.state, action.astype(np.int32))
        return outcome.reward, outcome.terminated, outcome.truncated

    def restart(self, where: Flags, uniform: Float32[np.ndarray, "envs 5"]) -> None:
        fresh = self.env.begin(self.market, self.settings, uniform)
        self.state = State(*(np.where(where, new, old) for new, old in zip(fresh, self.state, strict=True)))


class OneByOne:
    """Accounts as objects, as vectorised environments of today hold them."""

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

    def step(self, action: Actions) -> Stepped:
        outcomes = [account.step(int(a)) for account, a in zip(self.accounts, action, strict=True)]
        reward, terminated, truncated, *_ = zip(*outcomes, strict=True)
        return np.array(reward, np.float32), np.array(terminated, bool), np.array(truncated, bool)

    def restart(self, where: Flags, uniform: Float32[np.ndarray, "envs 5"]) -> None:
        for i in np.flatnonzero(where):
            self.accounts[i].begin(uniform[i])
