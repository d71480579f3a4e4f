"""What `crossfade eval` says of a policy: what it earns, beside players who have learned nothing and in other turns."""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

from ...run import RunDir
from ...run.evaluation import Evaluation, Judged
from . import baselines, shown
from .config import TreasurehuntConfig
from .evaluation import TreasurehuntEffort

HEAD = ("turns", "order", "return", "difference", "first mover")
SAYS = (
    "One policy on the same games, each figure \N{PLUS-MINUS SIGN} its standard error. Difference: what it earns more "
    "than in its own turns, those it learned in, game by game. First mover: what whoever acts first earns more than "
    "whoever acts last; in the fixed order these are always agent 0 and the last one. Within two standard errors of 0 "
    "it may be chance; beyond that it has a star."
)


def judge(run: RunDir, config: TreasurehuntConfig, found: Evaluation, effort: TreasurehuntEffort) -> Judged:
    """The figures, then the policy in every kind of turns, and the end of a game."""
    figures = found.study["figures"]
    said = [headline(config, figures, effort.episodes), agents(config, figures)]
    table = aligned([HEAD, *rows(found.study["turns"])])
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    end = shown.last_map(config.env, found.arrays, colour)
    return Judged({"study": found.study}, [*said, "", *table, "", *wrap(SAYS, 100), *(["", *end] if end else [])])


def headline(config: TreasurehuntConfig, figures: Mapping[str, Any], episodes: int | None = None) -> str:
    """The return of all agents together in one sentence."""
    own = with_error(figures["eval/return"], figures["eval/return_se"])
    games = "" if episodes is None else f" over {episodes} games"
    others = [f"{label} {value:.4g}" for label, value in baselines.named(config.env, figures).items()]
    return f"Return {own}{games}, all agents together; {', '.join(others)}."


def agents(config: TreasurehuntConfig, figures: Mapping[str, Any]) -> str:
    """What each agent earns."""
    each = [f"{agent}: {figures[f'eval/return_{agent}']:.4g}" for agent in range(config.env.agents)]
    return f"Of that each agent: {', '.join(each)}."


def rows(turns: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each kind of turns and order of agents."""
    found = []
    for row in turns:
        figures = [with_error(row["return"], row["return_se"])]
        figures += ["its own turns" if row["own"] else _starred(row, "difference"), _starred(row, "first_mover")]
        found.append([row["moves"].replace("_", " "), row["order"], *figures])
    return found


def with_error(value: float, error: float) -> str:
    """A figure and its standard error, to two digits of the latter."""
    digits = max(0, 1 - math.floor(math.log10(error))) if error > 0 else 1
    return f"{value:,.{digits}f} \N{PLUS-MINUS SIGN} {error:,.{digits}f}"


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table for the terminal."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def _starred(row: Mapping[str, Any], name: str) -> str:
    star = " *" if abs(row[name]) > 2 * row[f"{name}_se"] else ""
    return with_error(row[name], row[f"{name}_se"]) + star
