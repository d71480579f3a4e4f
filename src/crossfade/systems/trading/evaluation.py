"""What a policy earns on days it has not seen, beside doing nothing and beside traders who see nothing.

Every session is traded once by an account of its own, from flat to flat. Training looks at the few figures of
`evaluate` now and then: dollars per session, with the standard error of their mean; with an effort everything is
computed (study.py). These are figures of a simulation: no promise of any profit.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ...envs.trading.market import Market, Settings, State
from ...envs.trading.params import TradingParams
from ...envs.trading.trading_numpy import Trading
from ...nn.normalizer_numpy import Statistics, normalize
from ...run.evaluation import Evaluation
from . import data
from .config import TradingConfig
from .judging import baselines, ledger, record, statistics
from .judging.findings import Findings, find
from .judging.ledger import Trades
from .judging.record import Record
from .judging.stage import Ints, Stage, StudyEffort, Trader
from .judging.study import study


@dataclass(frozen=True)
class TradingEvaluation(Evaluation):
    """Its arrays are results in dollars of each day, of the policy (`daily`) and of those it is compared with."""

    findings: Findings | None = None
    """What the study was computed from."""


Act = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(observation, mask) -> the most probable action of each account."""


def greedy(config: TradingConfig, act: Act, statistics: Any) -> Trader:
    """The policy that takes the most probable action; observations are normalised by `statistics`."""
    frozen = Statistics(*map(np.asarray, statistics))

    def trade(params: TradingParams, market: Market, settings: Settings, m: Ints, t: Ints, n_bars: int) -> Record:
        env = Trading(params)

        def decide(row: int, state: State, mask: np.ndarray) -> np.ndarray:
            observation = env.observe(market, settings, state).astype(config.dtype)
            return act(normalize(frozen, observation) if config.normalize_observations else observation, mask)

        return record.trade(env, market, settings, m, t, decide, n_bars)

    return trade


def evaluate(config: TradingConfig, trader: Trader, effort: StudyEffort | None = None) -> TradingEvaluation:
    """The policy on every session held out: a few figures, or with an effort all there are."""
    stage = Stage(config)
    found = trader(config.params, stage.market, stage.settings, *stage.at, stage.n_bars)
    rate = found.state.trades.sum() / max(found.could_enter.sum(), 1)
    script = baselines.blind(config.seed, float(rate), len(stage.dates))
    by_chance = stage.trade(script, repeats=len(baselines.BLIND) * baselines.REPEATS)
    repeated = stage.dollars(by_chance).reshape(len(baselines.BLIND), baselines.REPEATS, -1)
    blind = dict(zip(baselines.BLIND, repeated, strict=True))
    session, trades = stage.dollars(found), found.state.trades.sum()
    daily = stage.by_day(session)
    metrics = {
        "eval/daily": session.mean(),
        "eval/daily_se": _error(session),
        "eval/sharpe": statistics.sharpe(daily),
        "eval/flat": 0.0,
        **{f"eval/{name}": results.mean() for name, results in blind.items()},
        **{f"eval/{name}_se": _error(results.mean(0)) for name, results in blind.items()},
        "eval/costs": (found.state.commissions + found.state.slippages).mean() / 100,
        "eval/trades": trades / len(session),
        "eval/win_rate": found.state.wins.sum() / max(trades, 1),
        "eval/max_drawdown": statistics.max_drawdown(daily),
        "eval/bust": found.bust.mean(),
    }
    arrays = {"days": stage.days, "daily": daily}
    arrays |= {f"{name}_daily": stage.by_day(results).mean(0) for name, results in blind.items()}
    numbers = {name: float(value) for name, value in metrics.items()}
    evaluation = TradingEvaluation(numbers, arrays, config.test_set)
    if effort is None:
        return evaluation
    findings = find(stage, trader, found, {name: stage.by_day(results) for name, results in blind.items()})
    scripts = {f"{name}_daily": other.mean(0) for name, other in findings.others.items()}
    return replace(
        evaluation,
        arrays={**arrays, **scripts, **_shown(stage, found, findings.trades)},
        study=study(config, findings, effort),
        findings=findings,
        files={"trades.csv": ledger.to_csv(findings.trades, config.specs, data.dates(config), stage.market)},
    )


def _shown(stage: Stage, found: Record, listed: Trades) -> dict[str, np.ndarray]:
    """One session for a picture, that of the median result among those with a trade: closes in points, and of each
    trade the rows of entry and exit, side, both prices and dollars."""
    session, traded = stage.dollars(found), np.flatnonzero(found.state.trades > 0)
    if not len(traded):
        return {}
    chosen = traded[np.argsort(session[traded], kind="stable")[len(traded) // 2]]
    m, t = (int(column[chosen]) for column in stage.at)
    tick, bars = list(stage.config.specs.values())[m].tick, slice(t, int(found.state.t[chosen]) + 1)
    mine = Trades(*(column[listed.session == chosen] for column in listed))
    prices = mine.entry * tick, mine.exit * tick
    return {
        "shown_close": stage.market.close[m, bars] * tick,
        "shown_trades": np.stack([mine.entered - t, mine.left - t, mine.side, *prices, mine.dollars], -1),
        "shown_day": np.array(stage.dates[chosen]),
        "shown_minute": stage.market.minute[m, bars],
        "shown_market": np.array(m),
    }


def _error(results: Float[np.ndarray, " sessions"]) -> float:
    return float(results.std(ddof=1) / np.sqrt(len(results))) if len(results) > 1 else 0.0
