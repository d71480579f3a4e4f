"""Does PPO learn where there is something to learn, and nothing where there is not?

Three markets of the same shape, without costs, each learned from scratch and judged on days never seen. `planted`: a
drift whose sign the volume tells, and whose best use is known in closed form. `exchanged`: the same prices, with the
volumes of the days exchanged at random: what the prices alone tell, a control of the measurement. `null`: prices
without drift, where nothing can be earned. Days are independent, so their spread gives the standard error.
"""

import time
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import optax
from jaxtyping import PyTree

from ...algos.ppo.network_jax import ActorCritic
from ...envs.trading import build, synthetic
from ...envs.trading.bars import Bars
from ...envs.trading.contracts import contract
from ...envs.trading.market import Market, Settings, State
from ...envs.trading.params import Rules, TradingParams
from ...envs.trading.sessions import within
from . import world
from .config import TradingConfig
from .data import HELD_OUT
from .judging import record
from .system_jax import System

CONTRACT, LEAST, SIGMAS = "ES", 0.6, 4.0
CONFIG = TradingConfig(
    mode="jax_full",
    env=TradingParams(window=5, rules=Rules(intrabar="path")),
    markets=(CONTRACT,),
    market="planted",
    costs=False,
    days=60,
    eval_days=400,
    n_envs=256,
    n_steps=64,
    hidden=32,
    lr=3e-3,
    steps=40,
)


class Learned(NamedTuple):
    """What a policy earns per unseen day, in dollars, after learning in a market."""

    market: str
    days: int
    trades: float  # per day
    mean: float
    error: float  # standard error of the mean
    optimum: float  # what who knows the drift makes at most
    seconds: float

    @property
    def share(self) -> float | None:
        """The mean as a share of the optimum; None where the optimum is 0."""
        return self.mean / self.optimum if self.optimum else None

    @property
    def passed(self) -> bool:
        """Whether it is as it should be, within four standard errors.

        The signal brings at least 60 % of the optimum, prices alone cannot be shown to, no drift brings nothing.
        """
        margin = SIGMAS * self.error
        if self.market == "null":
            return abs(self.mean) <= margin
        reached = self.mean - margin >= LEAST * self.optimum
        return reached == (self.market == "planted")


def learnability(config: TradingConfig = CONFIG, seed: int = 0) -> list[Learned]:
    """What PPO with the settings of `config` learns in each market; one program is compiled for all."""
    config = replace(config, seed=seed, data_seed=seed)
    system = System(config)
    optimizers = system.make_optimizers(system.make_policy(system.parameters()))
    found = []
    for name in ("planted", "exchanged", "null"):
        began = time.perf_counter()
        policy, statistics = _learn(system, optimizers, _market(config, name, config.days, seed)[0])
        market, optimum = _market(config, name, config.eval_days, seed + HELD_OUT)
        state = _trade(system, policy, statistics, market)
        daily = (state.balance - Settings().initial_cents) / 100
        error = float(daily.std(ddof=1) / np.sqrt(len(daily)))
        seconds = time.perf_counter() - began
        found.append(
            Learned(name, len(daily), float(state.trades.mean()), float(daily.mean()), error, optimum, seconds)
        )
    return found


def _market(config: TradingConfig, name: str, days: int, seed: int) -> tuple[Market, float]:
    """Days of a market, and the dollars that can be made in one of them."""
    mode = "martingale" if name == "null" else "planted"
    bars = synthetic.bars((CONTRACT,), days, seed, mode)[CONTRACT]
    ticks = 0.0 if name == "null" else synthetic.planted_optimum(within(bars))
    if name == "exchanged":
        bars = _exchange_volumes(bars, np.random.default_rng(seed))
    market = build.market({CONTRACT: bars}, config.features, config.costs, storage=config.storage)
    return market, ticks * contract(CONTRACT).tick_cents / 100


def _exchange_volumes(bars: Bars, rng: np.random.Generator) -> Bars:
    """Every day with the volume of a day drawn at random."""
    of_day = bars.volume.reshape(len(np.unique(bars.date)), -1)
    return bars._replace(volume=of_day[rng.permutation(len(of_day))].reshape(-1))


def _learn(
    system: System, optimizers: dict[str, optax.GradientTransformation], market: Market
) -> tuple[ActorCritic, Any]:
    """The policy after all updates on these days, and the statistics of what it saw."""
    system.use(market)
    policy = system.make_policy(system.parameters())
    params: PyTree = policy
    opt_states = {name: tx.init(params) for name, tx in optimizers.items()}
    policy, _, carry, _ = system.train(policy, optimizers, opt_states, system.start_buffer(), 0, system.config.steps)
    return policy, carry.statistics


def _trade(system: System, policy: ActorCritic, statistics: Any, market: Market) -> State:
    """The accounts of the greedy policy after one session each."""
    config, (m, t) = system.config, world.sessions(market)
    trade, settings = system.trader(policy, statistics), world.settings(config, config.horizon)
    return trade(config.params, market, settings, m, t, record.longest(market, m, t)).state
