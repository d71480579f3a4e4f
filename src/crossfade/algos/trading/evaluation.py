"""What a policy earns on days it has not seen, beside doing nothing and beside traders who see nothing.

These enter as often as the policy does, at random moments: on a random side, always long or always short. Few days
may all fall, and a policy that only sells then looks as if it could read them: it must beat all three.

Every session is traded once by an account of its own, from flat to flat; results are in dollars per session and come
with the standard error of their mean. These are figures of a simulation on synthetic data: no promise of any profit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ...envs.trading.market import Market, Settings, State
from ...envs.trading.params import Action
from ...envs.trading.trading_numpy import Trading
from ...nn.normalizer_numpy import Statistics, normalize
from ...random import random_numpy as random
from . import data, world
from .config import TradingConfig

Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(observation, mask) -> the most probable action of each account."""
Decide = Callable[[int, State, np.ndarray], np.ndarray]
BLIND = {"random": 0.5, "long": 1.0, "short": 0.0}  # traders who see nothing, by their probability of buying
REPEATS = 10  # of every session by each of them
STREAM = 0x7261  # of their draws, beside those of the updates


class Evaluation(NamedTuple):
    """What a policy turned out to be."""

    metrics: dict[str, float]
    arrays: dict[str, np.ndarray]
    """For pictures: results in dollars of each session, of the policy (`daily`) and of those who see nothing."""
    test_set: str = ""


class Traded(NamedTuple):
    """Sessions after they were traded."""

    state: State
    bust: Bool[np.ndarray, " sessions"]
    chances: int  # times that an account could have entered

    @property
    def dollars(self) -> Float[np.ndarray, " sessions"]:
        return (self.state.balance - Settings().initial_cents) / 100


def evaluate(config: TradingConfig, act: Act, statistics: Any) -> Evaluation:
    """The greedy policy on every session held out; observations are normalised by `statistics`."""
    market, settings, env = data.held_out(config), world.settings(config, config.steps), Trading(config.params)
    settings = settings._replace(max_bars=Settings().max_bars)  # whole sessions
    frozen = Statistics(*map(np.asarray, statistics))

    def greedy(t: int, state: State, mask: np.ndarray) -> np.ndarray:
        observation = env.observe(market, settings, state).astype(config.dtype)
        return act(normalize(frozen, observation) if config.normalize_observations else observation, mask)

    at = world.sessions(market)
    found = _trade(env, market, settings, at, greedy)
    rate = found.state.trades.sum() / max(found.chances, 1)
    blind = [np.tile(a, len(BLIND) * REPEATS) for a in at]
    by_chance = _trade(env, market, settings, blind, _random(config, float(rate), len(at[0])))
    daily = found.dollars
    blind_daily = dict(zip(BLIND, by_chance.dollars.reshape(len(BLIND), REPEATS, -1).mean(1), strict=True))
    trades, costs = found.state.trades.sum(), found.state.commissions + found.state.slippages
    metrics = {
        "eval/daily": daily.mean(),
        "eval/daily_se": _error(daily),
        "eval/flat": 0.0,
        **{f"eval/{name}": results.mean() for name, results in blind_daily.items()},
        **{f"eval/{name}_se": _error(results) for name, results in blind_daily.items()},
        "eval/costs": costs.mean() / 100,
        "eval/trades": trades / len(daily),
        "eval/win_rate": found.state.wins.sum() / max(trades, 1),
        "eval/max_drawdown": _max_drawdown(daily, at[1]),
        "eval/bust": found.bust.mean(),
    }
    arrays = {"daily": daily, **{f"{name}_daily": results for name, results in blind_daily.items()}}
    return Evaluation({name: float(value) for name, value in metrics.items()}, arrays)


def _trade(env: Trading, market: Market, settings: Settings, at: Any, decide: Decide) -> Traded:
    """Every session from its first possible decision to its end, all at once."""
    state = env.reset(market, settings, *at)
    bust, running, chances, t = np.zeros(len(at[0]), bool), np.ones(len(at[0]), bool), 0, 0
    while running.any():
        mask = env.mask(market, settings, state)
        chances += int((mask[:, Action.BUY] & running).sum())
        action, rows = decide(t, state, mask).astype(np.int32), np.flatnonzero(running)
        after, outcome = env.step(market, settings, State(*(field[rows] for field in state)), action[rows])
        fields = [field.copy() for field in state]
        for field, new in zip(fields, after, strict=True):
            field[rows] = new
        state, t = State(*fields), t + 1
        bust[rows] = outcome.terminated
        running[rows] = ~(outcome.terminated | outcome.truncated)
    return Traded(state, bust, chances)


def _random(config: TradingConfig, rate: float, sessions: int) -> Decide:
    """Enter with a given probability whenever that is legal, and leave exits to stop and target."""
    key = random.fold_in(random.key(config.seed), STREAM)
    long = np.repeat(list(BLIND.values()), REPEATS * sessions)

    def decide(t: int, state: State, mask: np.ndarray) -> np.ndarray:
        enter, side = random.uniform(random.fold_in(key, t), (len(mask), 2), "float32").T
        return np.where(
            mask[:, Action.BUY] & (enter < rate), np.where(side < long, Action.BUY, Action.SELL), Action.HOLD
        )

    return decide


def _error(daily: Float[np.ndarray, " sessions"]) -> float:
    return float(daily.std(ddof=1) / np.sqrt(len(daily))) if len(daily) > 1 else 0.0


def _max_drawdown(daily: Float[np.ndarray, " sessions"], t: np.ndarray) -> float:
    """Largest fall of the sum of results from its highest point, session by session in order of time."""
    total = np.concatenate([[0.0], np.cumsum(daily[np.argsort(t, kind="stable")])])
    return float((np.maximum.accumulate(total) - total).max())
