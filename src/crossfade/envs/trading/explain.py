"""Why two sets of rules part: at one bar, from one account, with one action, and the switches that make the difference.

An account walks by the rules `against`, random actions among those that either set allows. At the step asked for, both
sets are given that account and that action. Then switches are flipped from `against` to `rules`, ever more at a time:
the smallest sets that reproduce what `rules` does explain the step. From the other side, a switch is needed if undoing
it alone changes what `rules` does.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ...config import apply
from ...errors import UsageError, nearest
from . import build, synthetic
from .market import Market, Settings, State
from .params import RULES, START_NUMBERS, Action, Reason, Rules, TradingParams
from .scalar import ScalarTrading

DAYS, MOST = 5, 2000
ACTIONS = {value: name for name, value in vars(Action).items() if name.isupper()}
REASONS = {value: name for name, value in vars(Reason).items() if name.isupper()}
Seen = dict[str, Any]
"""What a step shows, by name: what was legal, the outcome, the account after it."""


class Situation(NamedTuple):
    """An account before a bar, and what it does."""

    market: Market
    settings: Settings
    state: State  # of plain integers
    action: int
    phase: int


class Explanation(NamedTuple):
    """What differs, and because of what; nothing when both sets do the same."""

    differs: dict[str, tuple[Any, Any]]  # by `rules` and by `against`
    because: list[tuple[str, ...]]  # the smallest sets of switches, each of which suffices
    needed: tuple[str, ...]  # switches that cannot be undone one by one


def rules_named(text: str) -> Rules:
    """`seed_jax`, or the sound rules with switches: `gaps=ignored,trail=same_bar`."""
    if "=" in text:
        return apply(Rules(), text.split(","))
    if text not in RULES:
        known = f"Known: {', '.join(RULES)}, or switches of the sound rules such as gaps=ignored,trail=same_bar."
        raise UsageError(f"unknown rules {text!r}.{nearest(text, RULES)} {known}")
    return RULES[text]


def explain(situation: Situation, rules: Rules, against: Rules) -> Explanation:
    """Which switches part the two sets in this situation."""
    switches = [field.name for field in fields(Rules) if getattr(rules, field.name) != getattr(against, field.name)]
    flipped = lambda base, other, names: replace(base, **{name: getattr(other, name) for name in names})
    found, expected = _see(situation, rules), _see(situation, against)
    differs = {name: (found[name], expected[name]) for name in found if found[name] != expected[name]}
    if not differs:
        return Explanation({}, [], ())
    because: list[tuple[str, ...]] = []
    for size in range(1, len(switches) + 1):
        because = [
            names for names in combinations(switches, size) if _see(situation, flipped(against, rules, names)) == found
        ]
        if because:
            break
    needed = [name for name in switches if _see(situation, flipped(rules, against, (name,))) != found]
    return Explanation(differs, because, tuple(needed))


def text(step: int, at: Situation, found: Explanation, names: tuple[str, str], later: int | None) -> str:
    """The explanation for people; `later` is the next step that differs."""
    side = {1: "long", 0: "flat", -1: "short"}[at.state.position]
    lines = [f"step {step}: {ACTIONS[at.action]} after bar {at.state.t}, {side}"]
    if not found.differs:
        return "\n".join([*lines, "  nothing differs", *_later(later)])
    wide = max(20, *(len(name) + 2 for name in names))
    lines.append(f"  {'':<24}{names[0]:>{wide}}{names[1]:>{wide}}")
    for name, values in found.differs.items():
        ours, theirs = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
        lines.append(f"  {name:<24}{ours:>{wide}}{theirs:>{wide}}")
    lines.append(f"because of: {', or '.join(' and '.join(names) for names in found.because)}")
    lines.append(f"needed:     {', '.join(found.needed) or 'none alone: each is made up for by the others'}")
    return "\n".join([*lines, *_later(later)])


def _later(step: int | None) -> list[str]:
    return [] if step is None else [f"the next step that differs is {step}"]


def walk(step: int, rules: Rules, against: Rules, phase: int = 2, seed: int = 0) -> Iterator[Situation]:
    """The situations from a step on, counted from 0, of an account that lives by `against` on synthetic days."""
    if not 0 <= step < MOST:
        raise UsageError(f"explain: expected a step from 0 to {MOST - 1}, got {step}.")
    market, settings = build.market(synthetic.bars(("ES",), DAYS, seed)), Settings(drawdown_cents=250_000)
    rng = np.random.default_rng(seed)
    account = ScalarTrading(_params(phase, against), market, settings)
    state = account.begin(rng.random(START_NUMBERS, np.float32))
    for number in range(MOST):
        legal = account.mask() | _resumed(market, settings, state, phase, rules).mask()
        situation = Situation(market, settings, state, int(rng.choice(np.flatnonzero(legal))), phase)
        if number >= step:
            yield situation
        outcome = account.step(situation.action)
        state = account.state
        if outcome.terminated or outcome.truncated:
            state = account.begin(rng.random(START_NUMBERS, np.float32))


def _see(situation: Situation, rules: Rules) -> Seen:
    account = _resumed(situation.market, situation.settings, situation.state, situation.phase, rules)
    legal = {f"{ACTIONS[i]} is legal": bool(ok) for i, ok in enumerate(account.mask())}
    outcome = account.step(situation.action)._asdict()
    told = {**outcome, "reward": float(outcome["reward"]), "reason": REASONS[int(outcome["reason"])]}
    return {**legal, **told, **account.state._asdict()}


def _resumed(market: Market, settings: Settings, state: State, phase: int, rules: Rules) -> ScalarTrading:
    """An account by other rules in the same state."""
    account = ScalarTrading(_params(phase, rules), market, settings)
    account.resume(state)
    return account


def _params(phase: Any, rules: Rules) -> TradingParams:
    return TradingParams(phase, window=1, rules=rules)
