"""Is the simulated market fair, and does it keep the future to itself?

Martingale audit: on prices without drift no strategy may win or lose anything but its costs. Scripted policies trade
one account per day; days are independent, so their spread gives the standard error. Causality audit: whatever happens
after bar t, what was seen, allowed and filled up to t stays the same, bit for bit.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int32

from . import build, synthetic
from .bars import Bars
from .market import Market, Settings, State
from .params import Action, Rules, TradingParams
from .sessions import CLOSE
from .trading_numpy import Trading

Actions = Int32[np.ndarray, " accounts"]
Mask = Bool[np.ndarray, "accounts actions"]
Script = Callable[[np.random.Generator, Market, State, Mask], Actions]
SIGMAS = 4.0
UNLIMITED = Settings(drawdown_cents=200_000_000, lock_cents=200_000_000)  # nobody is stopped out of the game


class Finding(NamedTuple):
    """What one scripted policy earned per day, in dollars."""

    policy: str
    days: int
    trades: int
    mean: float
    costs: float  # itemised: commissions and slippage
    error: float  # standard error of the mean

    @property
    def fair(self) -> bool:
        """Whether the mean is minus the costs, within four standard errors; without trades nothing is shown."""
        return self.trades > 0 and abs(self.mean + self.costs) <= SIGMAS * self.error


def martingale(rules: Rules | None = None, days: int = 2000, costs: bool = False, seed: int = 0) -> list[Finding]:
    """What scripted policies earn on jumping prices without drift; which level of a bar came first is known."""
    rules = replace(rules or Rules(), intrabar="path", reward="equity")
    market = build.market(synthetic.bars(("ES",), days, seed, "jumping_martingale"), costs=costs)
    return [_finding(name, script, rules, market, seed) for name, script in SCRIPTS.items()]


class Exact(NamedTuple):
    """What one scripted policy paid in commissions per day, in dollars, and for how many accounts that is not all."""

    policy: str
    accounts: int
    commissions: float
    off: int

    @property
    def exact(self) -> bool:
        return self.commissions > 0 and self.off == 0


def commissions(rules: Rules | None = None, days: int = 300, seed: int = 0) -> list[Exact]:
    """Checks that with commissions as the only cost every account ends at its costless balance less what it paid."""
    rules = replace(rules or Rules(), intrabar="path", reward="equity")
    bars = synthetic.bars(("ES",), days, seed, "jumping_martingale")
    free, paid = build.market(bars, costs=False), build.market(bars)
    paid = paid._replace(slippage=np.zeros_like(paid.slippage))  # it would move entries, and with them stops
    found = []
    for name, script in SCRIPTS.items():
        without, with_them = (_played(script, rules, market, seed) for market in (free, paid))
        off = int((with_them.balance != without.balance - with_them.commissions).sum())
        found.append(Exact(name, len(without.t), float(with_them.commissions.mean()) / 100, off))
    return found


def causality(params: TradingParams, days: int = 3, seed: int = 0, cuts: int = 12) -> list[str]:
    """Where the future shows before its time, in words; empty when it does not."""
    bars = synthetic.bars(("ES",), days, seed)["ES"]
    env, settings = Trading(params), Settings()
    rng = np.random.default_rng(seed)
    before = build.market({"ES": bars})
    actions = rng.integers(0, params.n_actions, (before.length[0], 1)).astype(np.int32)
    expected = _record(env, before, settings, actions)
    problems = []
    for cut in rng.integers(build.features_of.WARM_UP + 1, before.length[0] - 1, cuts):
        found = _record(env, build.market({"ES": _scramble(bars, int(cut), rng)}), settings, actions)
        for name, column in expected.items():
            differs = np.flatnonzero((column[: cut + 1] != found[name][: cut + 1]).reshape(cut + 1, -1).any(-1))
            if len(differs):
                problems.append(f"{name} of bar {differs[0]} changes with bars after {cut}")
    return problems


def _finding(name: str, script: Script, rules: Rules, market: Market, seed: int) -> Finding:
    state = _played(script, rules, market, seed)
    result = (state.balance - UNLIMITED.initial_cents) / 100
    costs = (state.commissions + state.slippages) / 100
    error = float((result + costs).std(ddof=1) / np.sqrt(len(result)))
    return Finding(name, len(result), int(state.trades.sum()), float(result.mean()), float(costs.mean()), error)


def _played(script: Script, rules: Rules, market: Market, seed: int) -> State:
    """One account for every day, at the day's end."""
    env, rng, settings = Trading(TradingParams(phase=2, rules=rules)), np.random.default_rng(seed), UNLIMITED
    starts = market.start[0, : market.n_start[0]]
    opens = starts[np.concatenate([[True], np.diff(starts) > 1])]  # the first of each day
    state = env.reset(market, settings, np.zeros_like(opens), opens)
    running = np.ones(len(opens), bool)
    while running.any():
        action = script(rng, market, state, env.mask(market, settings, state))
        after, outcome = env.step(market, settings, state, action)
        state = State(*(np.where(running, new, old) for new, old in zip(after, state, strict=True)))
        running &= ~(outcome.terminated | outcome.truncated)
    return state


def _record(env: Trading, market: Market, settings: Settings, actions: Int32[np.ndarray, "bars 1"]) -> dict:
    """Everything an account sees, may do and does, by bar; where an episode ends the next begins."""
    columns: dict[str, list] = {name: [] for name in ("observation", "mask", "balance", "entry", "stop")}
    t = np.array([build.features_of.WARM_UP], np.int32)
    blank = np.zeros(env.params.observation_dim, np.float32)
    for name, value in zip(columns, (blank, np.zeros(env.params.n_actions, bool), 0, 0, 0), strict=True):
        columns[name] += [value] * t[0]
    state = env.reset(market, settings, np.zeros_like(t), t)
    while state.t[0] < market.length[0] - 1:
        columns["observation"].append(env.observe(market, settings, state)[0])
        columns["mask"].append(env.mask(market, settings, state)[0])
        for name in ("balance", "entry", "stop"):
            columns[name].append(getattr(state, name)[0])
        state, outcome = env.step(market, settings, state, actions[state.t[0]])
        if outcome.terminated[0] or outcome.truncated[0]:
            state = env.reset(market, settings, np.zeros_like(state.t), state.t)
    return {name: np.array(values) for name, values in columns.items()}


def _scramble(bars: Bars, cut: int, rng: np.random.Generator) -> Bars:
    """Bars up to `cut` as they are, all later ones changed."""
    later = np.arange(len(bars.stamp)) > cut
    shift = np.where(later, rng.integers(-30, 31, len(later)), 0).astype(np.int32)
    sides = {side: getattr(bars, side) + shift for side in ("open", "high", "low", "close")}
    sides["high"] = sides["high"] + np.where(later, 7, 0).astype(np.int32)
    volume = np.where(later, bars.volume * 3 + 1, bars.volume)
    return bars._replace(**sides, volume=volume, high_first=bars.high_first ^ later)


def _legal(mask: Mask, action: np.ndarray) -> Actions:
    """The action where it is legal, else HOLD."""
    return np.where(np.take_along_axis(mask, action[:, None], 1)[:, 0], action, Action.HOLD).astype(np.int32)


def _random(rng: np.random.Generator, market: Market, state: State, mask: Mask) -> Actions:
    return (rng.random(mask.shape) * mask).argmax(1).astype(np.int32)


def _churn(rng: np.random.Generator, market: Market, state: State, mask: Mask) -> Actions:
    """Enters as soon as it is flat, long and short in turns."""
    return _legal(mask, np.where(state.trades % 2, Action.SELL, Action.BUY))


def _trail_always(rng: np.random.Generator, market: Market, state: State, mask: Mask) -> Actions:
    return _legal(mask, np.where(state.position == 0, Action.BUY, Action.TRAIL))


def _break_even_at_once(rng: np.random.Generator, market: Market, state: State, mask: Mask) -> Actions:
    return _legal(mask, np.where(state.position == 0, Action.SELL, Action.BREAK_EVEN))


def _flip_at_close(rng: np.random.Generator, market: Market, state: State, mask: Mask) -> Actions:
    """Trades the last quarter of an hour alone, against the day's direction."""
    minute = market.minute[state.market, state.t]
    up = market.close[state.market, state.t] > market.close[state.market, state.began]
    return _legal(mask, np.where(minute >= CLOSE - 15, np.where(up, Action.SELL, Action.BUY), Action.HOLD))


def _revenge(rng: np.random.Generator, market: Market, state: State, mask: Mask) -> Actions:
    """Doubles down on the side that has just lost."""
    return _legal(mask, np.where(state.losses % 2, Action.BUY, Action.SELL))


SCRIPTS: dict[str, Script] = {
    "random": _random,
    "churn": _churn,
    "always trail": _trail_always,
    "break-even at once": _break_even_at_once,
    "flip at close": _flip_at_close,
    "revenge": _revenge,
}
