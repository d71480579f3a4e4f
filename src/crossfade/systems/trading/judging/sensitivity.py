"""How much of a result is owed to the rules by which bars are turned into fills.

A bar does not say whether its high or its low came first. The frozen policy trades the same sessions again under every
answer, all other fills by the sound rules, whatever the config has; where the results lie on both sides of 0, the
answer and not the policy made the profit, and there is no headline. What ignoring gaps would give is shown beside, but
is no answer: a bar does say where it opened.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ....envs.trading.params import Rules
from ..config import TradingConfig
from .record import Record
from .stage import Stage, Trader

ANSWERS = ("pessimistic", "nearest", "path", "optimistic")
FILLS: dict[str, dict[str, Any]] = {
    **{answer: {"intrabar": answer} for answer in ANSWERS},
    "gaps ignored": {"intrabar": "pessimistic", "gaps": "ignored"},
}
FILLING = ("fill", "gaps", "trail", "commission", "entries", "drawdown")
"""The switches of `Rules` that decide at what price, and at what cost, an order is filled or an account ends."""


class Fills(NamedTuple):
    """Dollars per day under each of `FILLS`."""

    daily: dict[str, Float[np.ndarray, " days"]]

    @property
    def interval(self) -> tuple[float, float]:
        """The lowest and the highest mean of the `ANSWERS`."""
        means = [float(self.daily[answer].mean()) for answer in ANSWERS]
        return min(means), max(means)

    @property
    def straddles(self) -> bool:
        """Whether some rules give a gain and others a loss."""
        low, high = self.interval
        return low < 0 < high


def fills(stage: Stage, trader: Trader, record: Record) -> Fills:
    """The sessions traded again under each of the rules; `record` is what the policy did under the config's own."""
    done = {stage.config.params.rules: record}
    sound = replace(stage.config.params.rules, **{name: getattr(Rules(), name) for name in FILLING})
    found = {}
    for name, switches in FILLS.items():
        rules = replace(sound, **switches)
        if rules not in done:
            params = replace(stage.config.params, rules=rules)
            done[rules] = trader(params, stage.market, stage.settings, *stage.at, stage.n_bars)
        found[name] = stage.by_day(stage.dollars(done[rules]))
    return Fills(found)


def unsound(config: TradingConfig) -> list[str]:
    """What flatters a result of this config: rules under which no broker fills, and costs that are left out."""
    rules, sound = config.params.rules, Rules()
    found = [f"{name}={getattr(rules, name)}" for name in FILLING if getattr(rules, name) != getattr(sound, name)]
    found += ["intrabar=optimistic"] if rules.intrabar == "optimistic" else []
    left_out = {"no commission": config.commission == 0, "no slippage": config.slippage == 0}
    return found + ([name for name, is_so in left_out.items() if is_so] if config.costs else ["no costs"])
