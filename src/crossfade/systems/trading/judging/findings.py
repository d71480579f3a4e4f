"""What was found on some days, by day and trade by trade: what a study computes its figures from.

Findings of several stretches of days, such as the folds of a walk, can be joined; nothing in them depends on another
day. Several markets of one day are one day.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ....envs.trading.params import Reason
from . import baselines, firms, hindsight, ledger
from .firms import Days
from .ledger import Trades
from .record import Record
from .sensitivity import fills
from .stage import Stage, Trader

ByDay = Float[np.ndarray, " days"]


class Findings(NamedTuple):
    """Dollars and numbers by day."""

    days: Int[np.ndarray, " days"]  # since 1970
    sessions: int
    columns: dict[str, ByDay]  # results (`daily`), and of trades their number, wins, gains and losses
    costs: dict[str, ByDay]  # commission and slippage
    others: dict[str, Float[np.ndarray, "repeats days"]]  # results of those it is compared with
    fills: dict[str, ByDay]  # results under other rules
    hindsight: ByDay  # what could have been earned at most
    paths: Days  # equity within each day
    trades: Trades
    counts: dict[str, int]  # of bars and sessions


def find(
    stage: Stage, trader: Trader, record: Record, blind: Mapping[str, Float[np.ndarray, "repeats days"]]
) -> Findings:
    """`record` is what the policy did, `blind` the results of those who see nothing, day by day."""
    listed = ledger.trades(record, stage.market, stage.settings, stage.config.params.rules, *stage.at)
    per_session = lambda values: np.bincount(listed.session, values, len(stage.dates)).astype(np.float64)
    of_trades = {
        "trades": np.ones(len(listed.result)),
        "wins": listed.result > 0,
        "gains": np.maximum(listed.dollars, 0.0),
        "losses": np.maximum(-listed.dollars, 0.0),
    }
    paid = {"commission": record.state.commissions, "slippage": record.state.slippages}
    scripts = {name: daily[None] for name, daily in scripted(stage).items()}
    held = (record.position != 0) | (record.reason != Reason.NONE)
    day = np.searchsorted(stage.days, stage.dates)
    return Findings(
        stage.days,
        len(stage.dates),
        {
            "daily": stage.by_day(stage.dollars(record)),
            **{name: stage.by_day(per_session(values)) for name, values in of_trades.items()},
        },
        {name: stage.by_day(cents / 100) for name, cents in paid.items()},
        {"flat": scripts["flat"], **blind, **scripts},
        fills(stage, trader, record).daily,
        stage.by_day(hindsight.best(stage)),
        firms.days(record, stage.market, stage.settings, *stage.at, day),
        listed,
        {
            "bars": int(record.running.sum()),
            "bars_in_position": int(held.sum()),
            "bust_sessions": int(record.bust.sum()),
            "illegal_actions": int(record.state.illegal.sum()),
        },
    )


def scripted(stage: Stage) -> dict[str, ByDay]:
    """Results of the traders that follow a script."""
    opens = [spec.session.open for spec in stage.config.specs.values()]
    far = baselines.out_of_reach(stage.market, stage.settings)
    records = {
        "flat": stage.trade(baselines.flat),
        "hold": stage.trade(baselines.hold, far),
        "breakout": stage.trade(baselines.breakout(stage.market, *stage.at, opens)),
    }
    return {name: stage.by_day(stage.dollars(record)) for name, record in records.items()}


def join(parts: Sequence[Findings]) -> Findings:
    """The findings of consecutive stretches of days as one, in their order."""
    stack = lambda tables: {name: np.concatenate([table[name] for table in tables], -1) for name in tables[0]}
    bars = max(part.paths.close.shape[1] for part in parts)
    longer = lambda path: np.pad(path, ((0, 0), (0, bars - path.shape[1])), mode="edge")
    low, high, close = (np.concatenate([longer(part.paths[i]) for part in parts]) for i in range(3))
    return Findings(
        np.concatenate([part.days for part in parts]),
        sum(part.sessions for part in parts),
        stack([part.columns for part in parts]),
        stack([part.costs for part in parts]),
        stack([part.others for part in parts]),
        stack([part.fills for part in parts]),
        np.concatenate([part.hindsight for part in parts]),
        Days(low, high, close, np.concatenate([part.paths.traded for part in parts])),
        Trades(*(np.concatenate(columns) for columns in zip(*(part.trades for part in parts), strict=True))),
        {name: sum(part.counts[name] for part in parts) for name in parts[0].counts},
    )
