"""The settings of trading: PPO's, and those of the market and the account."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from ...algos.ppo.architecture import Architecture
from ...algos.ppo.config import PPOConfig
from ...envs.trading.contracts import Contract, contract
from ...envs.trading.importers import store
from ...envs.trading.params import RULES, Rules, TradingParams
from ...envs.trading.synthetic import Mode as MarketMode
from ...errors import UsageError
from ...ranges import Count, Natural, Range, Seed
from ...run.memory import network_bytes
from ...run.settings import Arrays, RunConfig
from .curriculum import COMMISSION, DRAWDOWN, FORCED, STOP_ATR, Curriculum


@dataclass(frozen=True)
class TradingConfig(PPOConfig):
    env: TradingParams = TradingParams()
    """Phase, window, and the rules switch by switch: `env.phase=2`, `env.rules.intrabar=path`."""
    rules: Literal["sound", "seed_jax", "seed_pandas"] = "sound"
    """A set of rules by name; switches of `env.rules` may be set on the sound ones."""
    markets: tuple[str, ...] = ("ES",)
    """Contracts that are traded, one in each episode."""
    data: str | None = None
    """Folder of imported bars; none takes the synthetic market."""
    folds: Natural = 0
    """Walk-forward parts of the data; 0 learns from all but what is held out: the last fifth of imported bars."""
    fold: Natural = 0
    """Which of the parts is held out, counted from 0; what is learned from lies before it."""
    embargo: Natural = 1
    """Sessions left out between those learned from and those held out."""
    market: MarketMode = "default"
    """Which synthetic market: the default, or one with a known truth; `bootstrap` resamples the days of `data`."""
    days: Count = 60
    """Days to learn from; of imported bars all of them."""
    eval_days: Count = 60
    """Days held out, of another seed, on which the greedy policy is judged."""
    data_seed: Seed = 0
    """Seed of the days."""
    features: Literal["session", "sound", "seed8"] = "session"
    """What is seen of a bar: scale-free features with the time since the open and to the close; the same with the time
    of day as an angle, of earlier runs; or the published raw columns."""
    storage: Literal["float32", "float16", "bfloat16"] = "float32"
    """Precision in which the features are kept; what a policy computes is in `dtype`."""
    costs: bool = True
    """Whether trading costs slippage and commissions."""
    balance: Annotated[float, Range(above=0, most=1e7)] = 50_000.0
    """Dollars that an account begins with."""
    account_days: Count = 1
    """Sessions that an account lives in training, its balance and floor carried from one to the next."""
    contracts: Count = 1
    """Size of a position, the largest one if `risk` is set."""
    risk: Annotated[float, Range(above=0, most=1e6)] | None = None
    """Dollars that a position may lose at its stop: it has as many contracts as that allows, at least one."""
    slippage: Annotated[int, Range(0, 1000)] | None = None
    """Ticks that an order at the market loses; none takes the contract's own."""
    commission: Annotated[float, COMMISSION] | None = None
    """Dollars per contract and side; none takes the contract's own."""
    drawdown: Annotated[float, DRAWDOWN] = 15_000.0
    """Dollars below the highest equity so far at which the account is bust."""
    lock: Annotated[float, Range(0, 1e6)] | None = 100.0
    """Dollars above the first balance at which that limit stops rising; none lets it rise for ever."""
    liquidation: Annotated[float, Range(0, 1e6)] = 0.0
    """Dollars above the limit below which a position is closed; 0 leaves it open."""
    stop_atr: Annotated[float, STOP_ATR] = 1.5
    """Distance of the stop in average true ranges."""
    stop_cap: Annotated[float, Range(above=0, most=1e6)] | None = 500.0
    """Dollars that one contract may lose to its stop at most; none leaves the distance as it is."""
    trail_atr: Annotated[float, STOP_ATR] = 1.0
    """Distance of a trailing stop from the close, in average true ranges."""
    break_even_atr: Annotated[float, Range(0, 100)] = 0.5
    """Profit beyond which the stop may be moved to the entry, in average true ranges."""
    forced: Annotated[float, FORCED] = 0.0
    """Share of the episodes that begin with a position, on a random side and at a random profit."""
    forced_atr: Annotated[float, Range(0, 100)] = 1.0
    """How far from the close such a position was entered at most, in average true ranges."""
    curriculum: Curriculum = Curriculum()
    """What changes as training goes on: `curriculum.drawdown=0:15000,0.5:5000,1:2500`."""
    network: Literal["mlp", "seed"] = "mlp"
    """A tanh trunk of `layers` times `hidden`, or the published 256-256 trunk with LayerNorm and heads of 128."""
    target_ratio: Annotated[int, Range(1, 100)] = 3
    """Distance of the target in distances of the stop."""
    max_bars: Annotated[int, Range(1, 10**9)] = 1_000_000
    """Bars after which an episode is cut off, if its session has not ended."""
    steps: Count = 500
    """Updates in all."""
    chunk: Count = 10
    """Updates between two looks at the clock, the log and Ctrl-C; one compiled call in jax_full."""
    log_every: Count = 10
    """Updates per row of the log."""
    eval_every: Natural = 100
    """Updates between evaluations; 0 evaluates only at the end."""
    checkpoint_every: Natural = 100
    """Updates between checkpoints; one is also written at the end and when the run is stopped."""

    def __post_init__(self):
        super().__post_init__()
        if not self.markets:
            raise UsageError("markets: expected at least one contract, got none.")
        for name, spec in self.specs.items():
            if (most := spec.max_contracts) < self.contracts:
                raise UsageError(f"contracts: expected 1 to {most} of {name}, got {self.contracts}.")
        if len(money := {spec.currency for spec in self.specs.values()}) > 1:
            raise UsageError(
                f"markets: expected contracts of one currency in one account, got {', '.join(sorted(money))}."
            )
        if len(set(self.markets)) < len(self.markets):
            raise UsageError(f"markets: expected each contract once, got {','.join(self.markets)}.")
        if self.fold >= max(self.folds, 1):
            raise UsageError(f"fold: expected less than folds={self.folds}, counted from 0, got {self.fold}.")
        if self.floor * self.params.n_actions > 1:
            raise UsageError(
                f"floor: expected 0 to 1/{self.params.n_actions}, as all {self.params.n_actions} actions may be legal, "
                f"got {self.floor}."
            )
        if self.apart and self.earlier:
            raise UsageError("apart=true: expected env.phase=1. Networks of later phases grow from a common trunk.")
        if self.network == "seed" and (self.apart, self.activation, self.initial) != (False, "tanh", "orthogonal"):
            raise UsageError("network=seed: expected neither apart nor activation nor initial: it has its own.")
        if self.features == "seed8" and self.storage != "float32":
            raise UsageError(
                f"storage: expected float32 with features=seed8, whose prices and volumes are raw, got {self.storage}. "
                "Scale-free features can be stored in 16 bits."
            )
        if self.rules != "sound" and self.env.rules != Rules():
            raise UsageError(f"rules={self.rules} sets every switch: leave env.rules alone, or rules at sound.")

    @property
    def params(self) -> TradingParams:
        """The rules of the environment, those of `rules` in place."""
        return self.env if self.rules == "sound" else replace(self.env, rules=RULES[self.rules])

    @property
    def specs(self) -> dict[str, Contract]:
        """The contracts of the markets; users' own are stored with their bars."""
        if self.data is None:
            return {name: contract(name) for name in self.markets}
        return {name: store.spec(Path(self.data), name) for name in self.markets}

    @property
    def sources(self) -> tuple[Path, ...]:
        return () if self.data is None else tuple(Path(self.data) / store.file_name(name) for name in self.markets)

    @property
    def architecture(self) -> Architecture:
        """That of PPO; network=seed is 256-256 with ReLU and LayerNorm, and heads of 128."""
        if self.network == "mlp":
            return super().architecture
        return Architecture((256, 256), (128,), activation="relu", layer_norm=True, initial="lecun")

    @property
    def earlier(self) -> tuple[TradingParams, ...]:
        """The worlds of the earlier phases, from whose networks this one's can grow, the first phase first."""
        return tuple(replace(self.env, phase=phase) for phase in (1, 2) if phase < self.env.phase)

    def footprint(self) -> dict[str, int]:
        params, bars = self.params, 390 * (self.days + self.eval_days) * len(self.markets)
        of_bar = params.n_features * (4 if self.storage == "float32" else 2) + 4 * 7
        network = network_bytes(params.observation_dim, self.hidden, self.layers, params.n_actions + 1, self.dtype)
        return {
            "of networks (hidden, layers)": network if self.network == "mlp" else 0,
            "of steps (n_envs, n_steps)": 4 * self.n_envs * self.n_steps * (params.n_actions + 4),
            "of days (days, eval_days, env.n_features)": 0 if self.data else bars * of_bar,
        }

    def course(self, update: int) -> dict[str, float]:
        """The rate, the curriculum, and progress where rewards depend on it."""
        progress, names = (
            self.progress(update),
            [f.name for f in fields(Curriculum) if getattr(self.curriculum, f.name)],
        )
        return {
            **super().course(update),
            **{f"curriculum.{name}": self.curriculum.at(name, progress, None) for name in names},
            **({"progress": progress} if self.params.rules.reward != "equity" else {}),
        }

    bookkeeping: ClassVar[tuple[str, ...]] = (*PPOConfig.bookkeeping, "fold")  # the folds of a walk are one trial

    @property
    def test_set(self) -> str:
        """The days held out, in words."""
        names = " ".join(self.markets)
        if self.data is not None:
            which = f"fold {self.fold} of {self.folds}" if self.folds else "the last fifth"
            return f"{self.data} {names}, {which}"
        source = f"synthetic {self.market} {names}, seed {self.data_seed}"
        if self.folds:
            return f"{source}, {self.days} days, fold {self.fold} of {self.folds}"
        return f"{source}, {self.eval_days} days held out"

    def adopt(
        self, parameters: Arrays, buffer: dict[str, Any] | None, saved: RunConfig | None
    ) -> tuple[Arrays, Any, str]:
        """Parameters with the observation statistics they were trained with; those of an earlier phase grow."""
        from .transfer import adopt

        return adopt(self, parameters, buffer, saved)  # pyright: ignore[reportArgumentType]

    @property
    def parts(self) -> tuple[str, str, str]:
        """Algorithm, world and mode: the name of a run."""
        return "ppo", "-".join(self.markets).lower(), self.mode
