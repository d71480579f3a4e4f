"""The settings of trading: PPO's, and those of the market and the account."""

from dataclasses import dataclass, replace
from typing import Literal

from ...envs.trading.contracts import contract
from ...envs.trading.params import RULES, Rules, TradingParams
from ...envs.trading.synthetic import Mode as MarketMode
from ...errors import UsageError
from ..ppo.config import PPOConfig


@dataclass(frozen=True)
class TradingConfig(PPOConfig):
    env: TradingParams = TradingParams()
    """Phase, window, and the rules switch by switch: `env.phase=2`, `env.rules.intrabar=path`."""
    rules: Literal["sound", "seed_jax", "seed_pandas"] = "sound"
    """A set of rules by name; switches of `env.rules` may be set on the sound ones."""
    markets: tuple[str, ...] = ("ES",)
    """Contracts that are traded, one in each episode."""
    market: MarketMode = "default"
    """Which synthetic market: the default, or one with a known truth."""
    days: int = 60
    """Days to learn from."""
    eval_days: int = 60
    """Days held out, of another seed, on which the greedy policy is judged."""
    data_seed: int = 0
    """Seed of the days."""
    features: Literal["sound", "seed8"] = "sound"
    """What is seen of a bar: scale-free features, or the published raw columns."""
    costs: bool = True
    """Whether trading costs slippage and commissions."""
    contracts: int = 1
    """Size of a position."""
    commission: float | None = None
    """Dollars per contract and side; none takes the contract's own."""
    drawdown: float = 15_000.0
    """Dollars below the highest equity so far at which the account is bust."""
    stop_atr: float = 1.5
    """Distance of the stop in average true ranges."""
    target_ratio: int = 3
    """Distance of the target in distances of the stop."""
    max_bars: int = 1_000_000
    """Bars after which an episode is cut off, if its session has not ended."""
    steps: int = 500
    """Updates in all."""
    chunk: int = 10
    """Updates between two looks at the clock, the log and Ctrl-C; one compiled call in jax_full."""
    log_every: int = 10
    """Updates per row of the log."""
    eval_every: int = 100
    """Updates between evaluations; 0 evaluates only at the end."""
    checkpoint_every: int = 100
    """Updates between checkpoints; one is also written at the end and when the run is stopped."""

    def __post_init__(self):
        super().__post_init__()
        if not self.markets:
            raise UsageError("markets: expected at least one contract, got none.")
        for name in self.markets:
            if (most := contract(name).max_contracts) < self.contracts or self.contracts < 1:
                raise UsageError(f"contracts: expected 1 to {most} of {name}, got {self.contracts}.")
        for name in ("days", "eval_days", "target_ratio", "drawdown", "stop_atr", "max_bars"):
            if (value := getattr(self, name)) <= 0:
                raise UsageError(f"{name}: expected a positive number, got {value}.")
        if self.rules != "sound" and self.env.rules != Rules():
            raise UsageError(f"rules={self.rules} sets every switch: leave env.rules alone, or rules at sound.")

    @property
    def params(self) -> TradingParams:
        """The rules of the environment, those of `rules` in place."""
        return self.env if self.rules == "sound" else replace(self.env, rules=RULES[self.rules])

    @property
    def parts(self) -> tuple[str, str, str]:
        """Algorithm, world and mode: the name of a run."""
        return "ppo", "-".join(self.markets).lower(), self.mode
