"""Everything that is asked of a policy on the days held out, as one tree of plain numbers.

Figures of a day are of all markets together. Intervals are of the stationary bootstrap over days: a figure is computed
again on days drawn in blocks, and 95 % of its values lie inside. Traders who are compared are resampled on the same
days, so that a difference is judged by the days on which both traded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Real

from ...envs.trading.contracts import contract
from ...envs.trading.params import Reason
from ...random import random_numpy as random
from . import baselines, data, firms, ledger, statistics
from .ledger import Trades
from .record import Record
from .sensitivity import Fills, fills
from .stage import Effort, Evaluation, Stage, Trader

STREAM = 0xB007  # of the bootstrap's draws, beside those of training
Drawn = Int[np.ndarray, "resamples days"]
Columns = Mapping[str, Float[np.ndarray, "*repeats days"]]


def study(
    stage: Stage,
    trader: Trader,
    found: Record,
    blind: Mapping[str, Float[np.ndarray, "repeats days"]],
    evaluation: Evaluation,
    effort: Effort,
) -> Evaluation:
    """`found` is what the policy did, `blind` the results of those who see nothing, day by day."""
    config, n = stage.config, len(stage.days)
    block = effort.block or statistics.block_length(n)
    key, firms_key = random.split(random.fold_in(random.key(config.seed), STREAM), 2)
    drawn = statistics.stationary_bootstrap(key, n, n, effort.resamples, block)
    listed = ledger.trades(found, stage.market, stage.settings, config.params.rules, *stage.at)
    columns, others = by_day(stage, found, listed), scripted(stage)
    again = fills(stage, trader)
    once = {name: daily[None] for name, daily in others.items()}
    compared = {"flat": once["flat"], **blind, **once}
    tree = {
        "days": n,
        "first_day": str(np.datetime64(int(stage.days[0]), "D")),
        "last_day": str(np.datetime64(int(stage.days[-1]), "D")),
        "sessions": len(stage.dates),
        "markets": list(config.markets),
        "block": block,
        "resamples": effort.resamples,
        "headline": _headline(columns, again, drawn),
        "figures": _with_intervals(columns, float(stage.settings.initial_cents) / 100, drawn),
        "trades": of_trades(listed, found),
        "costs": costs(stage, found),
        "exits": exits(listed),
        "months": months(stage.days, columns["daily"]),
        "baselines": {name: _compare(columns["daily"], daily, drawn) for name, daily in compared.items()},
        "fills": {name: {"per_day": float(daily.mean())} for name, daily in again.daily.items()},
        "firms": odds(stage, found, effort, firms_key, block),
        "moments": statistics.moments(columns["daily"])._asdict(),
    }
    arrays = {**evaluation.arrays, "days": stage.days, **{f"{name}_daily": daily for name, daily in others.items()}}
    text = ledger.to_csv(listed, config.markets, data.dates(config), stage.market)
    return evaluation._replace(
        arrays={**arrays, **_shown(stage, found, listed)}, study=tree, files={"trades.csv": text}
    )


def by_day(stage: Stage, found: Record, listed: Trades) -> Columns:
    """What the figures are made of: results, and of trades their number, wins, gains and losses."""
    per_session = lambda values: np.bincount(listed.session, values, len(stage.dates)).astype(np.float64)
    sums = {
        "trades": np.ones(len(listed.result)),
        "wins": listed.result > 0,
        "gains": np.maximum(listed.dollars, 0.0),
        "losses": np.maximum(-listed.dollars, 0.0),
    }
    daily = stage.by_day(stage.dollars(found))
    return {"daily": daily, **{name: stage.by_day(per_session(values)) for name, values in sums.items()}}


def figures(columns: Columns, capital: float) -> dict[str, Any]:
    """The figures that have an interval; of each repeat, if there are any."""
    daily, trades = columns["daily"], columns["trades"].sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "total": daily.sum(-1),
            "return": daily.sum(-1) / capital,
            "per_day": daily.mean(-1),
            "annual": statistics.YEAR * daily.mean(-1),
            "volatility": daily.std(-1, ddof=1) * np.sqrt(statistics.YEAR) if daily.shape[-1] > 1 else np.nan * trades,
            "sharpe": statistics.sharpe(daily),
            "sortino": statistics.sortino(daily),
            "calmar": statistics.calmar(daily),
            "max_drawdown": statistics.max_drawdown(daily),
            "drawdown_days": statistics.drawdown_duration(daily),
            "trades_per_day": trades / daily.shape[-1],
            "win_rate": columns["wins"].sum(-1) / trades,
            "profit_factor": columns["gains"].sum(-1) / columns["losses"].sum(-1),
            "expectancy": daily.sum(-1) / trades,
        }


def of_trades(listed: Trades, found: Record) -> dict[str, Any]:
    """What is known of trades beyond their sums."""
    results, held = listed.dollars, listed.left - listed.entered + 1
    mean = lambda values: float(values.mean()) if len(values) else float("nan")
    in_market = (found.position != 0) | (found.reason != Reason.NONE)
    return {
        "number": len(results),
        "long": int((listed.side > 0).sum()),
        "average_win": mean(results[results > 0]),
        "average_loss": mean(results[results <= 0]),
        "sqn": statistics.sqn(results),
        "kelly": statistics.kelly(results),
        "bars_held": mean(held),
        "exposure": float(in_market.sum() / found.running.sum()),
        "bust_sessions": int(found.bust.sum()),
        "illegal_actions": int(found.state.illegal.sum()),
    }


def costs(stage: Stage, found: Record) -> dict[str, float]:
    """Where the money went: gross = net + commission + slippage, in dollars."""
    net = float(stage.dollars(found).sum())
    commission, slippage = (float(paid.sum()) / 100 for paid in (found.state.commissions, found.state.slippages))
    return {"gross": net + commission + slippage, "commission": commission, "slippage": slippage, "net": net}


def exits(listed: Trades) -> dict[str, dict[str, Any]]:
    """Number of trades and dollars by the reason of their exit."""
    at = {name: listed.reason == value for value, name in ledger.REASONS.items() if value}
    return {
        name: {"trades": int(chosen.sum()), "dollars": float(listed.dollars[chosen].sum())}
        for name, chosen in at.items()
        if chosen.any()
    }


def months(days: Int[np.ndarray, " days"], daily: Float[np.ndarray, " days"]) -> dict[str, float]:
    """Dollars by month."""
    names = days.astype("datetime64[D]").astype("datetime64[M]")
    return {str(name): float(daily[names == name].sum()) for name in np.unique(names)}


def scripted(stage: Stage) -> dict[str, Float[np.ndarray, " days"]]:
    """Results of the traders that follow a script."""
    far = baselines.out_of_reach(stage.market, stage.settings)
    records = {
        "flat": stage.trade(baselines.flat),
        "hold": stage.trade(baselines.hold, far),
        "breakout": stage.trade(baselines.breakout(stage.market, *stage.at)),
    }
    return {name: stage.by_day(stage.dollars(record)) for name, record in records.items()}


def odds(stage: Stage, found: Record, effort: Effort, key: np.ndarray, block: float) -> dict[str, Any]:
    """Of each firm's evaluation."""
    known = dict(firms.load())
    for path in effort.firms:
        known |= firms.load(path)
    day = np.searchsorted(stage.days, stage.dates)
    of = firms.days(found, stage.market, stage.settings, *stage.at, day)
    horizon = max(firm.maximum_days for firm in known.values())
    drawn = statistics.stationary_bootstrap(key, len(stage.days), horizon, effort.resamples, block)
    return {name: firms.simulate(firm, of, drawn)._asdict() for name, firm in known.items()}


def selection(moments: Mapping[str, Any], trials: int, sharpes: Sequence[float]) -> dict[str, Any]:
    """How much of the Sharpe ratio is left once it is known to be picked from `trials`, whose annual ratios are known
    as far as they were evaluated. Their variance is taken to be at least that of chance, 1 / (sessions - 1)."""
    of = statistics.Moments(**moments)
    spread = float(np.var(sharpes, ddof=1) / statistics.YEAR) if len(sharpes) > 1 else 0.0
    variance = max(spread, 1 / max(of.sessions - 1, 1))
    return {
        "trials": trials,
        "expected_best": float(statistics.expected_best(trials, variance) * np.sqrt(statistics.YEAR)),
        "probabilistic_sharpe": statistics.probabilistic_sharpe(of),
        "deflated_sharpe": statistics.deflated_sharpe(of, trials, variance),
        "minimum_days": statistics.minimum_sessions(of),
    }


def _with_intervals(columns: Columns, capital: float, drawn: Drawn) -> dict[str, dict[str, float]]:
    repeated = figures({name: values[drawn] for name, values in columns.items()}, capital)
    return {name: _figure(value, repeated[name]) for name, value in figures(columns, capital).items()}


def _compare(
    daily: Float[np.ndarray, " days"], other: Float[np.ndarray, "repeats days"], drawn: Drawn
) -> dict[str, Any]:
    """Another trader's result, its Sharpe ratio (the mean of its repeats'), and how much more the policy earned."""
    mean, again = other.mean(0), other.mean(0)[drawn].mean(1)
    return {
        "per_day": _figure(mean.mean(), again),
        "sharpe": float(np.mean([statistics.sharpe(one) for one in other])),
        "difference": _figure((daily - mean).mean(), (daily - mean)[drawn].mean(1)),
    }


def _headline(columns: Columns, again: Fills, drawn: Drawn) -> dict[str, Any]:
    low, high = again.interval
    per_day = _figure(columns["daily"].mean(), columns["daily"][drawn].mean(1))
    return {**per_day, "fills_low": low, "fills_high": high, "refused": again.straddles}


def _figure(value: Any, repeats: Real[np.ndarray, " resamples"]) -> dict[str, float]:
    low, high = statistics.interval(repeats)
    return {"value": float(value), "low": low, "high": high}


def _shown(stage: Stage, found: Record, listed: Trades) -> dict[str, np.ndarray]:
    """One session for a picture, that of the median result among those with a trade: closes in points, and of each
    trade the rows of entry and exit, side, both prices and dollars."""
    session = stage.dollars(found)
    traded = np.flatnonzero(found.state.trades > 0)
    if not len(traded):
        return {}
    chosen = traded[np.argsort(session[traded], kind="stable")[len(traded) // 2]]
    m, t = (int(column[chosen]) for column in stage.at)
    tick, mine = contract(stage.config.markets[m]).tick, listed.session == chosen
    of = [column[mine] for column in listed]
    rows = [of[2] - t, of[3] - t, of[4], of[5] * tick, of[6] * tick, of[7] / 100]
    bars = slice(t, int(found.state.t[chosen]) + 1)
    return {
        "shown_close": stage.market.close[m, bars] * tick,
        "shown_trades": np.stack(rows, -1).astype(np.float64),
        "shown_day": np.array(stage.dates[chosen]),
        "shown_minute": stage.market.minute[m, bars],
        "shown_market": np.array(m),
    }
