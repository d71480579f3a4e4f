"""How often 95 % intervals cover the truth, in histories whose truth is known.

python benchmarks/interval_coverage.py [--repeats 1000] [--resamples 500]
"""

import argparse
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from crossfade.random import random_numpy as random
from crossfade.systems.trading.judging import intervals, statistics

Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
SESSIONS = (40, 60, 250)
LONG = 2_000_000  # sessions from which what has no closed form is computed
MEAN = 0.1  # of every law, in deviations of one session: a Sharpe ratio of 1.6 a year


def autoregressive(rng: np.random.Generator, shape: tuple[int, int], correlation: float = 0.2) -> np.ndarray:
    """AR(1), begun in its stationary law."""
    shocks = rng.normal(size=(shape[1], shape[0])) * math.sqrt(1 - correlation**2)
    found = np.empty_like(shocks)
    now = rng.normal(size=shape[0])
    for number, shock in enumerate(shocks):
        found[number] = now = correlation * now + shock
    return found.T


def lottery(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Many small losses, few large gains: skewness 2."""
    large = rng.random(shape) < 0.15
    return (np.where(large, 7.0, -1.0) + rng.normal(size=shape) * np.where(large, 1.0, 0.2) - 0.2) / math.sqrt(8.344)


LAWS: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "Student t4": lambda rng, shape: rng.standard_t(4, size=shape) / math.sqrt(2),
    "AR(1) 0.2": autoregressive,
    "small losses, few gains": lottery,
}

STUDENTISED = {"mean": intervals.mean_interval, "Sharpe": intervals.sharpe_interval}
PERCENTILE: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": lambda daily: daily.mean(-1),
    "Sharpe": statistics.sharpe,
    "volatility": statistics.volatility,
    "Sortino": statistics.sortino,
    "drawdown": statistics.max_drawdown,
    "duration": statistics.drawdown_duration,
    "win rate": lambda daily: (daily > 0).mean(-1),
    "profit factor": statistics.profit_factor,
}
OF_A_LENGTH = ("drawdown", "duration")  # their truth is the mean over histories of as many sessions


def coverage(
    draw: Draw, sessions: int, repeats: int, resamples: int, truth: Mapping[str, float], seed: int = 0
) -> dict[str, float]:
    """The share of histories whose intervals cover the truth: `mean, t` is the bootstrap-t, `mean, %` percentiles."""
    block, found = intervals.block_length(sessions), {}
    histories = draw(np.random.default_rng(seed), (repeats, sessions)) + MEAN
    for number, daily in enumerate(histories):
        key = random.fold_in(random.key(seed), number)
        drawn = intervals.stationary_bootstrap(key, sessions, sessions, resamples, block)
        again = daily[drawn]
        limits = {f"{name}, %": intervals.percentile(figure(again)) for name, figure in PERCENTILE.items()}
        limits |= {f"{name}, t": interval(daily, drawn, block) for name, interval in STUDENTISED.items()}
        for name, (low, high) in limits.items():
            if name.split(",")[0] in truth:
                found[name] = found.get(name, 0) + (low <= truth[name.split(",")[0]] <= high)
    return {name: covered / repeats for name, covered in found.items()}


def truths(draw: Draw, sessions: int) -> dict[str, float]:
    """Each figure of a very long history; of those that grow with its length, the mean over many histories."""
    one = draw(np.random.default_rng(1), (1, LONG))[0] + MEAN
    many = draw(np.random.default_rng(2), (LONG // sessions, sessions)) + MEAN
    of = {name: many if name in OF_A_LENGTH else one for name in PERCENTILE}
    return {**{name: float(PERCENTILE[name](daily).mean()) for name, daily in of.items()}, "mean": MEAN}


def rows(repeats: int, resamples: int) -> Iterator[tuple[str, int, dict[str, float]]]:
    for name, draw in LAWS.items():
        for sessions in SESSIONS:
            yield name, sessions, coverage(draw, sessions, repeats, resamples, truths(draw, sessions))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--resamples", type=int, default=500)
    asked = parser.parse_args()
    error = 100 * math.sqrt(0.95 * 0.05 / asked.repeats)
    print(f"coverage of 95 % intervals in %, {asked.repeats} histories, {asked.resamples} resamples, +-{error:.1f}")
    head = ["mean, %", "mean, t", "Sharpe, %", "Sharpe, t", *(f"{name}, %" for name in list(PERCENTILE)[2:])]
    print("| results | days | " + " | ".join(head) + " |\n|---|" + "---:|" * (len(head) + 1))
    for name, sessions, found in rows(asked.repeats, asked.resamples):
        cells = " | ".join(f"{100 * found[column]:.1f}" for column in head)
        print(f"| {name} | {sessions} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
