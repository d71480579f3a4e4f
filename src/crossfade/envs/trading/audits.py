"""Is the simulated market fair, and does it keep the future to itself?

Martingale audit: on prices without drift no strategy may win or lose anything but its costs. Scripted policies trade
one account per day; days are independent, so their spread gives the standard error. Causality audit: whatever happens
after bar t, what was seen, allowed and filled up to t stays the same, bit for bit, be later bars others or missing.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Int32

from . import build, synthetic
from .bars import Bars
from .contracts import contract
from .market import Market, Settings, State
from .params import Action, Rules, TradingParams
from .sessions import CLOSE, within
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
    """Where the future shows before its time, in words; empty when it does not.

    Bars after a cut are changed in every way of `CHANGES`. What was seen, allowed and booked up to the cut may not
    change; where the cut has become the last bar of its session, only up to the bar before: at the cut itself a
    position is closed, and nobody has known it would be.
    """
    bars, rng = synthetic.bars(("ES",), days, seed)["ES"], np.random.default_rng(seed)
    bars = within(bars)
    places = rng.integers(build.features_of.WARM_UP + 1, len(bars.stamp) - 1, cuts).tolist()
    changed = {(how, cut): change(bars, cut, rng) for cut in places for how, change in CHANGES.items()}
    worlds = {"as it was": bars, **{f"{how} after {cut}": of for (how, cut), of in changed.items()}}
    actions = rng.integers(0, params.n_actions, len(bars.stamp)).astype(np.int32)
    problems = []
    for features in get_args(build.Features):
        market = build.market(worlds, features, contracts=dict.fromkeys(worlds, contract("ES")))
        for name, column in _record(Trading(params), market, actions).items():
            for world, ((how, cut), of) in enumerate(changed.items(), start=1):
                upto = cut + int(cut + 1 < len(of.stamp) and of.date[cut + 1] == of.date[cut])
                differs = np.flatnonzero((column[:upto, 0] != column[:upto, world]).reshape(upto, -1).any(-1))
                if len(differs):
                    problems.append(f"{name} of bar {differs[0]} changes with bars after {cut} ({how}, {features})")
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


def _record(env: Trading, market: Market, actions: Actions) -> dict[str, np.ndarray]:
    """Everything an account in each market sees, may do and has, by (bar, market); where an episode ends the next
    begins, so that all are at the same bar."""
    first, settings = build.features_of.WARM_UP, Settings()
    m = np.arange(len(market.length), dtype=np.int32)
    state = env.reset(market, settings, m, np.full_like(m, first))
    rows: list[dict[str, np.ndarray]] = []
    for t in range(first, market.close.shape[1] - 1):
        flat = env.reset(market, settings, m, state.t)  # the account itself mostly has a position
        masks = {"mask": env.mask(market, settings, state), "mask when flat": env.mask(market, settings, flat)}
        booked = {name: getattr(state, name) for name in BOOKED}
        rows.append({"observation": env.observe(market, settings, state), **masks, **booked})
        state, outcome = env.step(market, settings, state, np.full_like(m, actions[t]))
        fresh, ended = env.reset(market, settings, m, state.t), outcome.terminated | outcome.truncated
        state = State(*(np.where(ended, new, old) for new, old in zip(fresh, state, strict=True)))
    blank = [{name: np.zeros_like(value) for name, value in rows[0].items()}] * first
    return {name: np.stack([row[name] for row in blank + rows]) for name in rows[0]}


def _scrambled(bars: Bars, cut: int, rng: np.random.Generator) -> Bars:
    later = np.arange(len(bars.stamp)) > cut
    shift = np.where(later, rng.integers(-30, 31, len(later)), 0).astype(np.int32)
    sides = {side: getattr(bars, side) + shift for side in ("open", "high", "low", "close")}
    sides["high"] = sides["high"] + np.where(later, 7, 0).astype(np.int32)
    volume = np.where(later, bars.volume * 3 + 1, bars.volume)
    return bars._replace(**sides, volume=volume, high_first=bars.high_first ^ later)


def _feed_dies(bars: Bars, cut: int, rng: np.random.Generator) -> Bars:
    """Without the rest of the day."""
    return bars.where((np.arange(len(bars.stamp)) <= cut) | (bars.date > bars.date[cut]))


def _bars_missing(bars: Bars, cut: int, rng: np.random.Generator) -> Bars:
    """Without half of the next twenty bars, the very next among them."""
    after = np.arange(len(bars.stamp)) - cut
    return bars.where((after < 1) | (after > 20) | ((after > 1) & (rng.random(len(after)) < 0.5)))


def _data_end(bars: Bars, cut: int, rng: np.random.Generator) -> Bars:
    """Without all later days."""
    return bars.where(bars.date <= bars.date[cut])


BOOKED = tuple(name for name in State._fields if name != "market")
CHANGES: dict[str, Callable[[Bars, int, np.random.Generator], Bars]] = {
    "scrambled": _scrambled,
    "the feed dies": _feed_dies,
    "bars missing": _bars_missing,
    "later days missing": _data_end,
}


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
