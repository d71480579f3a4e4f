"""Bars of several contracts put together into what the environments read."""

from collections.abc import Mapping
from typing import Literal

import ml_dtypes
import numpy as np
from jaxtyping import Bool, Int64

from ...errors import UsageError
from . import features as features_of
from .bars import Bars
from .contracts import Contract, contract
from .features import Features
from .market import Market
from .sessions import Sessions, clock_time, sessions, within

Days = Int64[np.ndarray, " days"]
Storage = Literal["float32", "float16", "bfloat16"]
STORED = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def market(
    bars: Mapping[str, Bars],
    features: Features = "session",
    costs: bool = True,
    days: Days | None = None,
    contracts: Mapping[str, Contract] | None = None,
    storage: Storage = "float32",
) -> Market:
    """The market of these contracts, by name. Without `costs` trading is free, for audits.

    With `days` (since 1970) episodes begin in the sessions of those days alone, and a session is `final` if the next
    one is of another day, so those of other days are never traded. All bars stay, since features look back. `contracts`
    has what is not built in. Features are kept in the precision of `storage`, rounded to the nearest: of a number x
    at most 2^-11 |x| away in float16 (2^-25 where |x| < 2^-14), 2^-8 |x| in bfloat16.
    """
    if not bars:
        raise UsageError("expected the bars of at least one contract, got none.")
    contracts = contracts or {}
    specs = {name: contracts.get(name) or contract(name) for name in bars}
    parts = [_one(name, specs[name], of, features, costs, days, storage) for name, of in bars.items()]
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


def _one(
    name: str, spec: Contract, bars: Bars, features: Features, costs: bool, days: Days | None, storage: Storage
) -> dict[str, np.ndarray]:
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
    scalar = lambda value: np.array(value, np.int32)
    return {
        **{field: getattr(bars, field) for field in ("open", "high", "low", "close", "high_first", "minute")},
        "atr64": atr,
        "may_enter": found.may_enter,
        "last": found.last,
        "session": found.session,
        "final": _final(bars, found, days),
        "features": features_of.make(features, bars, atr, spec.tick, session).astype(STORED[storage]),
        "length": scalar(len(bars.stamp)),
        "start": found.start,
        "n_start": scalar(len(found.start)),
        "tick_cents": scalar(spec.tick_cents),
        "slippage": scalar(spec.slippage if costs else 0),
        "commission_cents": scalar(spec.commission_cents if costs else 0),
        "reward_scale": np.array(1 / (8 * spec.tick_cents), np.float32),
    }


def _final(bars: Bars, found: Sessions, days: Days | None) -> Bool[np.ndarray, " bars"]:
    """Whether the session after that of each bar is not among the days, or is not there."""
    of_session = bars.date[found.last]
    goes_on = np.ones(len(of_session), bool) if days is None else np.isin(of_session, days)
    return ~np.append(goes_on[1:], False)[found.session]
