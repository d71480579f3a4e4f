"""The rewards of the two published systems, for `rules.reward`; one formula for NumPy and JAX (`xp`).

They are kept for comparison. Both pay for things that are not profit: see docs/trading.md.
"""

from types import ModuleType
from typing import Any, NamedTuple

from .market import Settings
from .params import Reason, TradingParams


class Facts(NamedTuple):
    """What happened in a bar."""

    held: Any  # position before the action
    holds: Any  # position after the bar
    opened: Any  # bool
    moved: Any  # bool: the stop was moved to break-even
    trailed: Any  # bool: trailing was switched on
    trailing: Any  # trailing was on when the bar came
    unrealised: Any  # cents at the close, 0 when flat
    reason: Any
    exit_result: Any  # cents that the exit brought, the entry's commission left out
    equity: Any
    bust: Any  # bool


def published_reward(params: TradingParams, settings: Settings, facts: Facts, xp: ModuleType) -> Any:
    """The reward that `params.rules.reward` names, in the phase of the params; phase 3 has that of phase 2, and leaving
    at the market is neither stop nor target."""
    if params.rules.reward == "seed_pandas":
        return _pandas(params, settings, facts, xp)
    return _jax_phase_1(settings, facts, xp) if params.phase == 1 else _jax_phase_2(settings, facts, xp)


def _jax_phase_1(settings: Settings, f: Facts, xp: ModuleType) -> Any:
    """Result / $100 on a stop or target, a fee for holding, a bonus for opening, -10 on a violation."""
    exited = (f.reason == Reason.STOP) | (f.reason == Reason.TARGET)
    patience = xp.where(settings.progress < 0.4, 0.0, 0.001)
    waiting = xp.where(f.held != 0, -0.01, patience)
    forced = f.bust | (f.reason == Reason.SESSION_END) | (f.reason == Reason.LIQUIDATED)
    opening = xp.where(f.opened, xp.maximum(0.0, 1.0 - settings.progress), 0.0)
    return xp.float32(xp.where(exited, f.exit_result / 10_000, waiting) + opening + xp.where(forced, -10.0, 0.0))


def _jax_phase_2(settings: Settings, f: Facts, xp: ModuleType) -> Any:
    """Bonuses that fade, a prize per trade, a salary for being above the initial balance, a graduated penalty."""
    loss = xp.clip((settings.initial_cents - f.equity) / settings.drawdown_cents, 0.0, 1.5)
    boost = xp.where(loss > 0.3, xp.clip(0.7 * (loss - 0.3), 0.0, 0.5), 0.0)
    fade = xp.clip(xp.maximum(1.0 - settings.progress, 0.2) + boost, 0.2, 1.0)
    explore = fade * (xp.where(f.opened, 1.0, 0.0) + xp.where(f.moved, 2.0, 0.0) + xp.where(f.trailed, 2.0, 0.0))
    violated = f.bust | (f.reason == Reason.SESSION_END)
    penalty = xp.where(violated, -10.0, xp.clip(-15.0 * (loss - 0.3) / 0.7, -15.0, 0.0))
    total = explore + _management(settings, f, xp) + _prize(f, xp) + _salary(settings, f) + penalty
    return xp.float32(xp.clip(total / settings.contracts, -15.0 / settings.contracts, 10.0 / settings.contracts))


def _pandas(params: TradingParams, settings: Settings, f: Facts, xp: ModuleType) -> Any:
    """Phase 1 never pays a result: its exits were labelled otherwise than its reward expected."""
    if params.phase == 1:
        exited = (f.reason == Reason.STOP) | (f.reason == Reason.TARGET)
        waiting = xp.where(f.holds != 0, -0.01, 0.001)
        return xp.float32(xp.where(f.bust, -0.05, xp.where(exited, 0.0, waiting)))
    violated = xp.where(f.bust, -10.0, 0.0)
    return xp.float32(_management(settings, f, xp) + _prize(f, xp) + _salary(settings, f) + violated)


def _management(settings: Settings, f: Facts, xp: ModuleType) -> Any:
    return xp.where(f.trailed, xp.where(f.unrealised > 0.01 * settings.initial_cents, 0.1, -0.1), 0.0)


def _prize(f: Facts, xp: ModuleType) -> Any:
    exited, won = (f.reason == Reason.STOP) | (f.reason == Reason.TARGET), f.exit_result > 0
    return xp.where(exited, xp.where(won, 2.0 + 0.5 * xp.where(f.trailing, 1.0, 0.0), -1.0), 0.0)


def _salary(settings: Settings, f: Facts) -> Any:
    return 20 * (f.equity - settings.initial_cents) / settings.initial_cents
