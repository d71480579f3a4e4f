"""Bars of several contracts put together into what the environments read."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from jaxtyping import Int64

from ...errors import UsageError
from . import features as features_of
from .bars import Bars
from .contracts import Contract, contract
from .market import Market
from .sessions import clock_time, sessions, within

Days = Int64[np.ndarray, " days"]


def market(
    bars: Mapping[str, Bars],
    features: Literal["sound", "seed8"] = "sound",
    costs: bool = True,
    days: Days | None = None,
    contracts: Mapping[str, Contract] | None = None,
) -> Market:
    """The market of these contracts, by name. Without `costs` trading is free, for audits.

    With `days` (since 1970) episodes begin in the sessions of those days alone. All bars stay, since features look
    back; no episode leaves its session, so those of other days are never traded. `contracts` has what is not built in.
    """
    if not bars:
        raise UsageError("expected the bars of at least one contract, got none.")
    contracts = contracts or {}
    specs = {name: contracts.get(name) or contract(name) for name in bars}
    parts = [_one(name, specs[name], of, features, costs, days) for name, of in bars.items()]
    longest, starts = (max(len(part[field]) for part in parts) for field in ("open", "start"))
    columns = {}
    for field in Market._fields:
        values = [part[field] for part in parts]
        if field == "start":
            values = [np.pad(v, (0, starts - len(v)), mode="edge") for v in values]
        elif values[0].ndim:
            values = [np.pad(v, ((0, longest - len(v)), *[(0, 0)] * (v.ndim - 1)), mode="edge") for v in values]
        columns[field] = np.stack(values)
    return Market(**columns)


def session_days(bars: Mapping[str, Bars], contracts: Mapping[str, Contract] | None = None) -> Days:
    """Days on which an episode can begin in at least one of the contracts."""
    found = [np.empty(0, np.int64)]
    for name, whole in bars.items():
        session = ((contracts or {}).get(name) or contract(name)).session
        of = within(whole, session)
        if len(of.stamp):
            found.append(of.date[sessions(of, features_of.WARM_UP, session).start])
    return np.unique(np.concatenate(found))


def _one(name: str, spec: Contract, bars: Bars, features: str, costs: bool, days: Days | None) -> dict[str, np.ndarray]:
    session = spec.session
    bars = within(bars, session)
    found = sessions(bars, features_of.WARM_UP, session) if len(bars.stamp) else None
    if found is not None and days is not None:
        found = found._replace(start=found.start[np.isin(bars.date[found.start], days)])
    if found is None or not len(found.start):
        raise UsageError(
            f"{name}: no bar after which an episode could begin. Expected at least one session with "
            f"{features_of.WARM_UP} bars before it, got {len(bars.stamp)} bars between "
            f"{clock_time(session.open - 60)} and {clock_time(session.close)} {session.place} time"
            f"{'' if days is None else f' and none of its {len(days)} sessions wanted'}."
        )
    atr = features_of.atr64(bars)
    seen = features_of.sound(bars, atr, session) if features == "sound" else features_of.seed8(bars, spec.tick, session)
    scalar = lambda value: np.array(value, np.int32)
    return {
        **{field: getattr(bars, field) for field in ("open", "high", "low", "close", "high_first", "minute")},
        "atr64": atr,
        "may_enter": found.may_enter,
        "last": found.last,
        "features": seen,
        "length": scalar(len(bars.stamp)),
        "start": found.start,
        "n_start": scalar(len(found.start)),
        "tick_cents": scalar(spec.tick_cents),
        "slippage": scalar(spec.slippage if costs else 0),
        "commission_cents": scalar(spec.commission_cents if costs else 0),
    }
