"""Everything that is asked of a policy on the days held out, as one tree of plain numbers.

Intervals are of the stationary bootstrap over days: a figure is computed again on days drawn in blocks, and 95 % of its
values lie inside. Traders who are compared are resampled on the same days, so that a difference is judged by the days
on which both traded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Real

from ....random import random_numpy as random
from ..config import TradingConfig
from . import firms, ledger, statistics
from .findings import Findings
from .ledger import Trades
from .sensitivity import Fills, unsound
from .stage import StudyEffort

STREAM = 0xB007  # of the bootstrap's draws, beside those of training
Drawn = Int[np.ndarray, "resamples days"]
Columns = Mapping[str, Float[np.ndarray, "*repeats days"]]


def study(config: TradingConfig, found: Findings, effort: StudyEffort) -> dict[str, Any]:
    """All figures; numbers that are not finite stay as they are."""
    n, daily = len(found.days), found.columns["daily"]
    block = effort.block or statistics.block_length(n)
    key, firms_key = random.split(random.fold_in(random.key(config.seed), STREAM), 2)
    drawn = statistics.stationary_bootstrap(key, n, n, effort.resamples, block)
    return {
        "days": n,
        "first_day": str(np.datetime64(int(found.days[0]), "D")),
        "last_day": str(np.datetime64(int(found.days[-1]), "D")),
        "sessions": found.sessions,
        "markets": list(config.markets),
        "block": block,
        "resamples": effort.resamples,
        "headline": {**_headline(daily, Fills(found.fills), drawn), "unsound": unsound(config)},
        "figures": _with_intervals(found.columns, config.balance, drawn),
        "trades": of_trades(found),
        "costs": costs(found),
        "exits": exits(found.trades),
        "months": months(found.days, daily),
        "baselines": {name: _compare(daily, other, drawn) for name, other in found.others.items()},
        "fills": {name: {"per_day": float(other.mean())} for name, other in found.fills.items()},
        "hindsight": {
            "per_day": float(found.hindsight.mean()),
            "share": float(daily.sum() / found.hindsight.sum()) if found.hindsight.any() else float("nan"),
        },
        "firms": odds(found, effort, firms_key, block),
        "moments": statistics.moments(daily)._asdict(),
    }


def figures(columns: Columns, capital: float) -> dict[str, Any]:
    """The figures that have an interval; of each repeat, if there are any. Accounts begin with `capital` dollars."""
    daily, trades = columns["daily"], columns["trades"].sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "total": daily.sum(-1),
            "return": daily.sum(-1) / capital,
            "per_day": daily.mean(-1),
            "annual": statistics.YEAR * daily.mean(-1),
            "volatility": statistics.volatility(daily),
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


def of_trades(found: Findings) -> dict[str, Any]:
    """What is known of trades beyond their sums."""
    listed, counts = found.trades, found.counts
    results, held = listed.dollars, listed.left - listed.entered + 1
    mean = lambda values: float(values.mean()) if len(values) else float("nan")
    return {
        "number": len(results),
        "long": int((listed.side > 0).sum()),
        "average_win": mean(results[results > 0]),
        "average_loss": mean(results[results <= 0]),
        "sqn": statistics.sqn(results),
        "kelly": statistics.kelly(results),
        "bars_held": mean(held),
        "exposure": counts["bars_in_position"] / counts["bars"],
        "bust_sessions": counts["bust_sessions"],
        "illegal_actions": counts["illegal_actions"],
    }


def costs(found: Findings) -> dict[str, float]:
    """Where the money went: gross = net + commission + slippage, in dollars."""
    net, paid = float(found.columns["daily"].sum()), {name: float(daily.sum()) for name, daily in found.costs.items()}
    return {"gross": net + sum(paid.values()), **paid, "net": net}


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


def odds(found: Findings, effort: StudyEffort, key: np.ndarray, block: float) -> dict[str, Any]:
    """The probability of passing each firm's evaluation, by bootstrap over days."""
    horizon = max(firm.maximum_days for firm in effort.rules.values())
    drawn = statistics.stationary_bootstrap(key, len(found.days), horizon, effort.resamples, block)
    return {name: firms.simulate(firm, found.paths, drawn)._asdict() for name, firm in effort.rules.items()}


def selection(
    moments: Mapping[str, Any], trials: int, sharpes: Sequence[float], dailies: Sequence[np.ndarray] = ()
) -> dict[str, Any]:
    """How much of the Sharpe ratio is left once it is known to be picked from `trials`.

    `sharpes` are their annual ratios as far as they were evaluated; the variance of them is taken to be at least that
    of chance, 1 / (days - 1). `dailies` are the results of those that were judged by the same days.
    """
    of = statistics.Moments(**moments)
    spread = float(np.var(sharpes, ddof=1)) / statistics.YEAR if len(sharpes) > 1 else 0.0
    variance = max(spread, 1 / max(of.sessions - 1, 1))
    known = [daily for daily in dailies if len(daily) == of.sessions]
    return {
        "trials": trials,
        "expected_best": float(statistics.expected_best(trials, variance) * np.sqrt(statistics.YEAR)),
        "probabilistic_sharpe": statistics.probabilistic_sharpe(of),
        "deflated_sharpe": statistics.deflated_sharpe(of, trials, variance),
        "minimum_days": statistics.minimum_sessions(of),
        "overfitting": statistics.overfitting(np.stack(known)) if known else float("nan"),
    }


def _with_intervals(columns: Columns, capital: float, drawn: Drawn) -> dict[str, dict[str, float]]:
    repeated = figures({name: values[drawn] for name, values in columns.items()}, capital)
    return {name: _figure(value, repeated[name]) for name, value in figures(columns, capital).items()}


def _compare(
    daily: Float[np.ndarray, " days"], other: Float[np.ndarray, "repeats days"], drawn: Drawn
) -> dict[str, Any]:
    """Another trader's result, its Sharpe ratio (the mean of its repeats'), and how much more the policy earned."""
    mean = other.mean(0)
    return {
        "per_day": _figure(mean.mean(), mean[drawn].mean(1)),
        "sharpe": float(np.mean([statistics.sharpe(one) for one in other])),
        "difference": _figure((daily - mean).mean(), (daily - mean)[drawn].mean(1)),
    }


def _headline(daily: Float[np.ndarray, " days"], again: Fills, drawn: Drawn) -> dict[str, Any]:
    low, high = again.interval
    return {
        **_figure(daily.mean(), daily[drawn].mean(1)),
        "fills_low": low,
        "fills_high": high,
        "refused": again.straddles,
    }


def _figure(value: Any, repeats: Real[np.ndarray, " resamples"]) -> dict[str, float]:
    low, high = statistics.interval(repeats)
    return {"value": float(value), "low": low, "high": high}
