"""What each offline agent learns in the embedded maze: success before and after fine-tuning, several seeds.

    python benchmarks/offline_learning.py --json benchmarks/results/offline_learning.json
    python benchmarks/offline_learning.py --agents iql rebrac --mode torch
    python benchmarks/offline_learning.py --agents rebrac --seeds 11 12 13 lr=1e-3
    python benchmarks/offline_learning.py --beside benchmarks/results/offline_learning{,_torch}.json

Every agent is trained by its preset, `maze_iql` and so on, and all are judged by the same episodes. `before` is the
policy at the end of pre-training, which has seen no reward: of fb_repr and hilp the one at the latent that they infer
(zero-shot), of the others behavioural cloning. `cloning` is IQL that clones to its end. Episodes of the task begin in
one cell, those `from anywhere` in all of the maze. In mode jax_full the seeds are trained side by side in one program,
where the system has populations, else one after the other. `--beside` trains nothing: it compares the curves of two
records, success from anywhere, evaluation by evaluation.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crossfade.algos.offline.config import AGENTS
from crossfade.config import apply
from crossfade.loading import load_attribute
from crossfade.run.files import write_json
from crossfade.run.settings import MODES, Mode
from crossfade.systems.offline import RECORD
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.trainers.making import make_trainer

CLONING = "cloning"
LAST = 3
"""Evaluations at the end of a curve that the table gives the mean of."""
HEAD = (
    "| agent | task: before, % | at the end | last three | from anywhere: before, % | at the end | last three "
    "| steps to goal | updates | seconds |\n|---|---|---|---|---|---|---|---|---|---|"
)
Evaluated = tuple[int, list[float], list[float], list[float]]
"""The update, and of each seed success in the task, its steps, and success from anywhere."""
FIGURES = ("success", "length", "anywhere")


def config_of(agent: str, words: list[str]) -> OfflineDataConfig:
    """The preset of an agent."""
    preset = RECORD.presets[f"maze_{'iql' if agent == CLONING else agent}"]
    config = apply(apply(OfflineDataConfig(), preset), words)
    return replace(config, pretrain=config.steps) if agent == CLONING else config


def learn(config: OfflineDataConfig, seeds: list[int]) -> Iterator[Evaluated]:
    """Trains with several seeds, and says how they do whenever they are evaluated."""
    configs = [replace(config, seed=seed) for seed in seeds]
    marks = sorted({*range(0, config.steps, config.eval_every), *config.breaks, config.steps})
    if config.mode == "jax_full" and RECORD.population:
        population = load_attribute(RECORD.population)(configs)
        for first, last in pairwise(marks):
            population.run(first, last - first)
            found = population.evaluate()
            yield last, *(found[name].tolist() for name in FIGURES)
        return
    trainers = [make_trainer(RECORD, own) for own in configs]
    for first, last in pairwise(marks):
        for trainer in trainers:
            trainer.run(first, last - first)
        found = [trainer.evaluate().metrics for trainer in trainers]
        yield last, *([m[f"eval/{name}"] for m in found] for name in FIGURES)


def row(agent: str, found: dict[str, Any]) -> str:
    """A line of the table: before the mean, then of each seed. The last three evaluations are those of fine-tuning."""
    cloned = agent == CLONING
    update, _, steps, _ = found["curve"][-1]
    percent = lambda numbers: ", ".join(f"{100 * x:.0f}" for x in numbers)

    def columns(place: int) -> str:
        before = [at[place] for at in found["curve"] if at[0] == found["pretrain"] and not cloned]
        tuned = [at[place] for at in found["curve"] if cloned or at[0] > found["pretrain"]]
        earlier = percent([np.mean(before)]) if before else ""
        return f"{earlier} | {percent(tuned[-1])} | {percent(np.mean(tuned[-LAST:], 0))}"

    return f"| {agent} | {columns(1)} | {columns(3)} | {np.mean(steps):.0f} | {update} | {found['seconds']:.0f} |"


BESIDE = (
    "| agent | equal for all seeds until update | largest distance of the means, % | seeds' band there, % "
    "| evaluations within the band | at the end, mean, % |\n|---|---|---|---|---|---|"
)


def beside(agent: str, first: dict[str, Any], second: dict[str, Any]) -> str:
    """A line about two records of an agent. The band is the range of the seeds of one, the wider one."""
    curves = [np.array([at[3] for at in found["curve"]]) for found in (first, second)]  # evaluations, seeds
    means = [curve.mean(1) for curve in curves]
    distance, band = np.abs(means[0] - means[1]), np.max([np.ptp(curve, 1) for curve in curves], 0)
    differ = np.flatnonzero((curves[0] != curves[1]).any(1))
    until = first["curve"][differ[0] - 1][0] if len(differ) and differ[0] else first["curve"][-1][0] * (not len(differ))
    worst, inside = int(distance.argmax()), f"{int((distance <= band).sum())} of {len(band)}"
    ends = ", ".join(f"{100 * mean[-1]:.0f}" for mean in means)
    return f"| {agent} | {until} | {100 * distance[worst]:.0f} | {100 * band[worst]:.0f} | {inside} | {ends} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=[CLONING, *AGENTS], choices=[CLONING, *AGENTS])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--mode", default="jax_full", choices=MODES)
    parser.add_argument("--json", type=Path, help="what is found goes here; of other agents it stays as it is")
    parser.add_argument("--beside", type=Path, nargs=2, help="two records to compare")
    parser.add_argument("words", nargs="*", help="settings, as steps=1000")
    asked = parser.parse_args()
    if asked.beside:
        first, second = (json.loads(path.read_text()) for path in asked.beside)
        lines = [beside(agent, first[agent], second[agent]) for agent in AGENTS if agent in first and agent in second]
        print("\n".join((BESIDE, *lines)))
        return
    mode: Mode = asked.mode
    told: dict[str, Any] = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    print(HEAD)
    for agent in asked.agents:
        config, began = replace(config_of(agent, asked.words), mode=mode), time.perf_counter()
        curve = []
        for evaluated in learn(config, asked.seeds):
            curve.append(evaluated)
            print(agent, evaluated[0], evaluated[1], evaluated[3], file=sys.stderr, flush=True)
        told[agent] = {"mode": mode, "seeds": asked.seeds, "pretrain": config.pretrain, "curve": curve}
        told[agent]["seconds"] = round(time.perf_counter() - began, 1)
        print(row(agent, told[agent]), flush=True)
        if asked.json:
            write_json(asked.json, told)


if __name__ == "__main__":
    main()
