"""Zero-shot: what fb_repr and hilp do after pre-training alone, on all five tasks of the maze.

    python benchmarks/offline_zero_shot.py
    python benchmarks/offline_zero_shot.py --agents hilp --seeds 11 12 agent.alpha=3

Every agent is pre-trained by its preset, `maze_hilp` for one, for all of its updates, and one policy is judged on every
task. The latent of a task comes from the rewards of `latent_samples` transitions, 1 at the goal and 0 elsewhere, or 0
and -1 as the maze gives them; or from the goal itself, where that is known: z = B(goal), or phi(goal) - phi(s) at every
step. What the last way does not reach, the policy cannot do; what only the last one reaches, inference does not find.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from crossfade.algos.offline.terms_jax import on_sphere, policy_action
from crossfade.config import apply
from crossfade.envs.maze.params import TASKS
from crossfade.run.files import write_json
from crossfade.systems.offline import RECORD
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.systems.offline.evaluation import play_maze
from crossfade.systems.offline.population_jax import Population
from crossfade.systems.offline.system_jax import System

SHIFTED, PLAIN, GOAL = "rewards 0 and 1", "rewards -1 and 0", "the goal"
HEAD = "| agent | latent from | task 1, % | 2 | 3 | 4 | 5 | of each seed |\n|---|---|---|---|---|---|---|---|"
AGENTS = ("fb_repr", "hilp")
Found = dict[str, list[list[float]]]
"""Of each way to find the latent the success of each member, task by task."""


class Judges:
    """The tasks of a map, each by the usual episodes."""

    def __init__(self, config: OfflineDataConfig):
        tasks = range(1, len(TASKS[config.env.map]) + 1)
        own = lambda task, shift: replace(config, env=replace(config.env, task=task), reward_shift=shift)
        make = lambda shift: [System(replace(own(task, shift), mode="jax_policy")) for task in tasks]
        self.systems, self.plain, self.config = make(1.0), make(0.0), config

    def judge(self, policies: Sequence[Any]) -> Found:
        found: Found = {SHIFTED: [], PLAIN: [], GOAL: []}
        for policy in policies:
            for name, systems in ((SHIFTED, self.systems), (PLAIN, self.plain)):
                found[name].append([self._played(system, policy, system.infer_latent(policy)) for system in systems])
            found[GOAL].append([self._played(system, policy, None) for system in self.systems])
        return found

    def _played(self, system: System, policy: Any, latent: np.ndarray | None) -> float:
        """The success of a policy on a task, at a latent or, without one, at that of the goal."""
        seen = lambda position: system.data.statistics.apply(position).astype(np.float32)
        goal = seen(system.config.env.goal[None])

        def act(position: np.ndarray) -> np.ndarray:
            if latent is not None:
                return np.asarray(system._act(policy, seen(position), latent))
            return np.asarray(TOWARDS[self.config.agent.actor](policy, seen(position), goal))

        return float(play_maze(system.config.env, act, self.config.eval_episodes).success.mean())


@jax.jit
def _fb_towards(policy: Any, observations: jax.Array, goal: jax.Array) -> jax.Array:
    latents = on_sphere(policy["backward_repr"](goal)).repeat(len(observations), 0)
    return policy_action(policy["actor"](observations, latents), None)


@jax.jit
def _hilp_towards(policy: Any, observations: jax.Array, goal: jax.Array) -> jax.Array:
    encode = policy["value"].encode
    return policy_action(policy["skill_actor"](observations, on_sphere(encode(goal) - encode(observations))[0]), None)


TOWARDS: dict[str, Callable[[Any, Any, Any], jax.Array]] = {"actor": _fb_towards, "skill_actor": _hilp_towards}


def config_of(agent: str, words: Sequence[str]) -> OfflineDataConfig:
    """The preset of an agent, all of it pre-training."""
    preset = apply(OfflineDataConfig(), RECORD.presets[f"maze_{agent}"])
    config = apply(replace(preset, pretrain=0, latent_samples=100_000), words)
    return replace(config, pretrain=config.steps)


def learn(configs: Sequence[OfflineDataConfig]) -> Iterator[tuple[int, Found]]:
    """Pre-trains members side by side, and judges them whenever they are evaluated."""
    first, population, judges = configs[0], Population(configs), Judges(configs[0])
    for begin, end in pairwise(sorted({*range(0, first.steps, first.eval_every), first.steps})):
        population.run(begin, end - begin)
        yield end, judges.judge([population.policy(i) for i in range(len(configs))])


def rows(agent: str, found: Found) -> Iterator[str]:
    """Lines of the table: the mean over seeds of each task, and of each seed the mean over tasks."""
    percent = lambda numbers: [f"{100 * x:.0f}" for x in numbers]
    for name, success in found.items():
        table = np.array(success)
        yield f"| {agent} | {name} | {' | '.join(percent(table.mean(0)))} | {', '.join(percent(table.mean(1)))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=AGENTS, choices=AGENTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="what is found goes here; of other agents it stays as it is")
    parser.add_argument("words", nargs="*", help="settings, as steps=1000")
    asked = parser.parse_args()
    told: dict[str, Any] = json.loads(asked.json.read_text()) if asked.json and asked.json.exists() else {}
    print(HEAD)
    for agent in asked.agents:
        config, began, curve = config_of(agent, asked.words), time.perf_counter(), []
        for update, found in learn([replace(config, seed=seed) for seed in asked.seeds]):
            curve.append((update, found))
            print(
                agent, update, {name: np.mean(own, 0).round(2).tolist() for name, own in found.items()}, file=sys.stderr
            )
        told[agent] = {"seeds": asked.seeds, "curve": curve, "seconds": round(time.perf_counter() - began, 1)}
        print(*rows(agent, curve[-1][1]), sep="\n", flush=True)
        if asked.json:
            write_json(asked.json, told)


if __name__ == "__main__":
    main()
