"""How much of a result is owed to the rules by which bars are turned into fills.

A bar does not say whether its high or its low came first, nor what traded between two bars. The frozen policy trades
the same sessions again under every answer; where the results lie on both sides of 0, the answer and not the policy
made the profit, and there is no headline.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .record import Record
from .stage import Stage, Trader

FILLS: dict[str, dict[str, Any]] = {
    "pessimistic": {"intrabar": "pessimistic"},
    "nearest": {"intrabar": "nearest"},
    "path": {"intrabar": "path"},
    "optimistic": {"intrabar": "optimistic"},
    "gaps ignored": {"gaps": "ignored"},
}


class Fills(NamedTuple):
    """Dollars per day under each rule."""

    daily: dict[str, Float[np.ndarray, " days"]]

    @property
    def interval(self) -> tuple[float, float]:
        """The lowest and the highest mean."""
        means = [float(daily.mean()) for daily in self.daily.values()]
        return min(means), max(means)

    @property
    def straddles(self) -> bool:
        """Whether some rules give a gain and others a loss."""
        low, high = self.interval
        return low < 0 < high


def fills(stage: Stage, trader: Trader, record: Record) -> Fills:
    """The sessions traded again under each of the rules, all other switches as the config has them; `record` is what
    the policy did under the config's own."""
    done = {stage.config.params.rules: record}
    found = {}
    for name, switches in FILLS.items():
        rules = replace(stage.config.params.rules, **switches)
        if rules not in done:
            params = replace(stage.config.params, rules=rules)
            done[rules] = trader(params, stage.market, stage.settings, *stage.at, stage.n_bars)
        found[name] = stage.by_day(stage.dollars(done[rules]))
    return Fills(found)
