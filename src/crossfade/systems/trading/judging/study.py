"""Everything that is asked of a policy on the days held out, as one tree of plain numbers.

Intervals are of the stationary bootstrap over days (intervals.py): those of means and of the Sharpe ratio studentised,
of all other figures the middle 95 % of their values on days drawn in blocks. Traders who are compared are resampled on
the same days, so that a difference is judged by the days on which both traded.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from ....random import random_numpy as random
from ..config import TradingConfig
from . import firms, intervals, ledger, statistics
from .findings import Findings
from .ledger import Trades
from .sensitivity import Fills, unsound
from .stage import StudyEffort

STREAM = 0xB007  # of the bootstrap's draws, beside those of training
ByDay = Float[np.ndarray, " days"]
Drawn = Int[np.ndarray, "resamples days"]
Columns = Mapping[str, Float[np.ndarray, "*repeats days"]]


def study(config: TradingConfig, found: Findings, effort: StudyEffort) -> dict[str, Any]:
    """All figures; numbers that are not finite stay as they are."""
    n, daily = len(found.days), found.columns["daily"]
    block = effort.block or intervals.block_length(n)
    key, firms_key = random.split(random.fold_in(random.key(config.seed), STREAM), 2)
    drawn = intervals.stationary_bootstrap(key, n, n, effort.resamples, block)
    return {
        "days": n,
        "first_day": str(np.datetime64(int(found.days[0]), "D")),
        "last_day": str(np.datetime64(int(found.days[-1]), "D")),
        "sessions": found.sessions,
        "markets": list(config.markets),
        "block": block,
        "resamples": effort.resamples,
        "headline": {**_headline(daily, Fills(found.fills), drawn, block), "unsound": unsound(config)},
        "figures": _with_intervals(found.columns, config.balance, drawn, block),
        "trades": of_trades(found),
        "costs": costs(found),
        "exits": exits(found.trades),
        "months": months(found.days, daily),
        "baselines": {name: _compare(daily, other, drawn, block) for name, other in found.others.items()},
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
    drawn = intervals.stationary_bootstrap(key, len(found.days), horizon, effort.resamples, block)
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


def _with_intervals(columns: Columns, capital: float, drawn: Drawn, block: float) -> dict[str, dict[str, float]]:
    daily, n = columns["daily"], drawn.shape[1]
    repeated = figures({name: values[drawn] for name, values in columns.items()}, capital)
    values = figures(columns, capital)
    found = {name: _figure(value, intervals.percentile(repeated[name])) for name, value in values.items()}
    low, high = intervals.mean_interval(daily, drawn, block)
    times = {"total": n, "return": n / capital, "per_day": 1, "annual": statistics.YEAR}  # of the mean
    found |= {name: _figure(found[name]["value"], (low * by, high * by)) for name, by in times.items()}
    found["sharpe"] = _figure(found["sharpe"]["value"], intervals.sharpe_interval(daily, drawn, block))
    return found


def _compare(daily: ByDay, other: Float[np.ndarray, "repeats days"], drawn: Drawn, block: float) -> dict[str, Any]:
    """Another trader's result, its Sharpe ratio (the mean of its repeats'), and how much more the policy earned."""
    mean = other.mean(0)
    return {
        "per_day": _mean(mean, drawn, block),
        "sharpe": float(np.mean([statistics.sharpe(one) for one in other])),
        "difference": _mean(daily - mean, drawn, block),
    }


def _headline(daily: ByDay, again: Fills, drawn: Drawn, block: float) -> dict[str, Any]:
    low, high = again.interval
    return {**_mean(daily, drawn, block), "fills_low": low, "fills_high": high, "refused": again.straddles}


def _mean(daily: ByDay, drawn: Drawn, block: float) -> dict[str, float]:
    return _figure(daily.mean(), intervals.mean_interval(daily, drawn, block))


def _figure(value: Any, interval: tuple[float, float]) -> dict[str, float]:
    return {"value": float(value), "low": interval[0], "high": interval[1]}
