"""A study as tables, for the terminal and for pages: what a figure is called, and what stands beside it."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ....run.page import show

RISK = (
    "Risk notice: figures of a simulation on synthetic or historical bars. They are no promise of profit and no advice "
    "to trade; futures can lose more than was put in."
)
LABELS = {
    "total": "result, $",
    "return": "return on the account",
    "per_day": "$ per day",
    "annual": "$ per year of 252 days",
    "volatility": "volatility, $ per year",
    "sharpe": "Sharpe ratio",
    "sortino": "Sortino ratio",
    "calmar": "Calmar ratio",
    "max_drawdown": "largest drawdown, $",
    "drawdown_days": "longest time under water, days",
    "trades_per_day": "trades per day",
    "win_rate": "share of trades won",
    "profit_factor": "profit factor",
    "expectancy": "$ per trade",
    "number": "trades",
    "long": "of them long",
    "average_win": "average win, $",
    "average_loss": "average loss, $",
    "sqn": "system quality number",
    "kelly": "Kelly's share",
    "bars_held": "bars held",
    "exposure": "share of bars in a position",
    "bust_sessions": "sessions that went bust",
    "illegal_actions": "illegal actions",
}
BASELINES = {
    "flat": "never trades",
    "random": "random side, as often",
    "long": "long only, as often",
    "short": "short only, as often",
    "hold": "long, open to close",
    "breakout": "opening-range breakout",
}
SAYS = {
    "checkpoints": "Each is a trial in the ledger: to pick the best of them is to have tried them all.",
    "folds": "Each was judged by a policy that learned from the days before it alone.",
    "figures": "95 % intervals of the stationary bootstrap over days: of dollars per day, year and in all and of the "
    "Sharpe ratio by the bootstrap-t, of the others by percentiles, too short where days are few. Empty: not known.",
    "baselines": "All in the same environment at the same costs; the difference is what the policy earned more, day by "
    "day on the same days.",
    "fills": "The frozen policy again by sound rules, under every answer to which of stop and target came first; and "
    "what ignoring gaps would give, which is no answer and not part of the interval.",
    "firms": "Accounts that go through days drawn in blocks until they pass, are lost or run out of days.",
    "selection": "Sharpe ratios are of a year. Deflated is the probability that the true one is above 0 after the best "
    "of all trials in the ledger was picked; overfitted is one that is best on half of the days and below the median "
    "on the other half.",
}


class Table(NamedTuple):
    """Rows under a head; a cell is a word, a number or nothing."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    says: str = ""


def headline(study: Mapping[str, Any]) -> str:
    """The one sentence; refused where the fill rule decides whether there was a gain. What flatters it comes first."""
    of = study["headline"]
    under = f"UNSOUND ({', '.join(of['unsound'])}): " if of.get("unsound") else ""
    fills = f"{_money(of['fills_low'])} to {_money(of['fills_high'])} over the fill rules"
    if of["refused"]:
        return f"{under}No headline: {fills} per day, so the rule and not the policy decides whether there is a gain."
    known = not _unknown(of["low"])
    inside = f"{_money(of['low'])} to {_money(of['high'])} with 95 % confidence, {fills}" if known else fills
    return f"{under}{_money(of['value'])} per day ({inside})."


def tables(study: Mapping[str, Any]) -> list[Table]:
    """Everything in the study, in the order in which a reader asks."""
    figures = [[LABELS[name], of["value"], interval(of)] for name, of in study["figures"].items()]
    figures += [["$ per day at most, in hindsight", study["hindsight"]["per_day"], ""]]
    figures += [["share of that", study["hindsight"]["share"], ""]]
    trades = [[LABELS[name], value] for name, value in study["trades"].items()]
    costs = [[name, value, _share(value, study["trades"]["number"])] for name, value in study["costs"].items()]
    exits = [[name.replace("_", " "), of["trades"], of["dollars"]] for name, of in study["exits"].items()]
    others = [
        [BASELINES[name], of["per_day"]["value"], interval(of["per_day"]), of["sharpe"]]
        + [of["difference"]["value"], interval(of["difference"])]
        for name, of in study["baselines"].items()
    ]
    fills = [[name, of["per_day"]] for name, of in study["fills"].items()]
    firms = [
        [name.replace("_", " "), of["passed"], of["passed_se"], of["lost"], of["undecided"], of["days_to_pass"]]
        for name, of in study["firms"].items()
    ]
    found = [
        Table("Result", ["", "value", "95 % interval"], figures, SAYS["figures"]),
        Table("Trades", ["", "value"], trades),
        Table("Costs", ["", "$", "$ per trade"], costs),
        Table("Exits", ["reason", "trades", "$"], exits),
        Table("Months", ["month", "$"], list(map(list, study["months"].items()))),
        Table(
            "Compared with",
            ["trader", "$ per day", "95 % interval", "Sharpe", "difference", "95 % interval"],
            others,
            SAYS["baselines"],
        ),
        Table("Fill rules", ["rule", "$ per day"], fills, SAYS["fills"]),
        Table("Firms", ["evaluation", "passed", "error", "lost", "undecided", "days to pass"], firms, SAYS["firms"]),
    ]
    if "folds" in study:
        head = ["fold", "first day", "last day", "days", "$ per day", "Sharpe", "trades", "largest drawdown, $"]
        found.insert(1, Table("Folds", head, [list(fold.values()) for fold in study["folds"]], SAYS["folds"]))
    if "checkpoints" in study:
        head = ["step", "$ per day", "Sharpe", "largest drawdown, $", "trades per day"]
        found.append(
            Table("Checkpoints", head, [list(of.values()) for of in study["checkpoints"]], SAYS["checkpoints"])
        )
    if of := study.get("selection"):
        rows = [
            ["trials in the ledger", of["trials"]],
            ["best expected of so many without worth", of["expected_best"]],
            ["probability that the true ratio is above 0", of["probabilistic_sharpe"]],
            ["the same, deflated by the trials", of["deflated_sharpe"]],
            ["days needed for 95 % of the first", of["minimum_days"]],
            ["probability that the best trial was overfitted", of["overfitting"]],
            ["times these days were looked at", of["opened"]],
        ]
        found.append(Table("Selection", ["", "value"], rows, SAYS["selection"]))
    known = lambda rows: [[None if _unknown(cell) else cell for cell in row] for row in rows]
    return [table._replace(rows=known(table.rows)) for table in found if table.rows]


def lines(table: Table) -> list[str]:
    """For the terminal: the first column to the left, the others to the right."""
    cells = [list(table.head), *([show(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(table.head))]
    rule = lambda row: "  ".join(
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
    return [table.title, *(f"  {rule(row)}".rstrip() for row in cells)]


def interval(of: Mapping[str, float]) -> str:
    return "" if _unknown(of["low"]) else f"{show(of['low'])} .. {show(of['high'])}"


def _unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _money(dollars: float) -> str:
    return f"{'-' if dollars < 0 else ''}${abs(dollars):,.0f}"


def _share(value: float, number: int) -> float | None:
    return value / number if number else None
