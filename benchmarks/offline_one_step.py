"""How far one step of improvement over the policy of the data leads in the maze, by exact values on a grid.

    python benchmarks/offline_one_step.py
    python benchmarks/offline_one_step.py env.speed=0.5 style=explore
    python benchmarks/offline_one_step.py --places 4

InFOM and CRL value an action by where the data's own policy goes from there, and so does TD-InfoNCE in pre-training.
Here that value is exact but for a grid: the steps of the data, put into places of a third of a cell and eight
directions, are a Markov chain, whose discounted rewards are a linear equation. The policy that takes the best direction
by it is then judged by the usual episodes, and by such that begin anywhere.
"""

import argparse
from dataclasses import replace

import numpy as np

from crossfade.config import apply
from crossfade.envs.maze import data as maze
from crossfade.envs.maze.params import TASKS, MazeParams
from crossfade.systems.offline.config import OfflineDataConfig
from crossfade.systems.offline.evaluation import play_maze

DIRECTIONS, SEEN = 8, 5
"""Directions of actions, and steps of the data that a place and a direction need to be chosen."""
ANGLES = np.arange(DIRECTIONS) * 2 * np.pi / DIRECTIONS
ACTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], -1)


def place(env: MazeParams, position: np.ndarray, places: int) -> np.ndarray:
    """The number of the place of a position, so many along a cell."""
    x, y = np.floor(position * places).astype(int).T
    return y * env.walls.shape[1] * places + x


def direction(action: np.ndarray) -> np.ndarray:
    """The number of the direction that is nearest to an action."""
    turn = np.arctan2(action[:, 1], action[:, 0]) / (2 * np.pi)
    return np.floor((turn + 0.5 / DIRECTIONS) % 1 * DIRECTIONS).astype(int)


def values(config: OfflineDataConfig, gammas: list[float], places: int) -> dict[tuple[int, float], np.ndarray]:
    """Of each task and discount (places, directions): (1 - gamma) times the value, or -1 where data are too few."""
    rows = maze.collect(config.env, config.episodes, config.length, config.data_seed, style=config.style)
    steps = maze.transitions(rows)
    pairs = place(config.env, steps.observations, places) * DIRECTIONS + direction(steps.actions)
    seen, number, count = np.unique(pairs, return_inverse=True, return_counts=True)
    chain, goes_on = np.zeros((len(seen), len(seen))), steps.terminals[:-1] == 0
    np.add.at(chain, (number[:-1][goes_on], number[1:][goes_on]), 1.0)
    chain /= np.maximum(chain.sum(1, keepdims=True), 1)
    tasks = tuple(range(1, len(TASKS[config.env.map]) + 1))
    arrived = [maze.relabel(replace(config.env, task=task), steps.next_observations)[0] + 1 for task in tasks]
    rewards = np.stack([np.bincount(number, own) / count for own in arrived], 1)
    found = {}
    for gamma in gammas:
        solved = np.linalg.solve(np.eye(len(seen)) - gamma * chain, rewards) * (1 - gamma)
        for task, value in zip(tasks, solved.T, strict=True):
            table = np.full(config.env.walls.size * places**2 * DIRECTIONS, -1.0)
            table[seen] = np.where(count >= SEEN, value, -1)
            found[task, gamma] = table.reshape(-1, DIRECTIONS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gammas", type=float, nargs="+", default=[0.99, 0.97, 0.95])
    parser.add_argument("--places", type=int, default=3, help="places of the grid along a cell")
    parser.add_argument("words", nargs="*", help="settings, as env.map=umaze")
    asked = parser.parse_args()
    config = apply(OfflineDataConfig(), asked.words)
    print("| task | gamma | success, % | from anywhere, % |\n|---|---|---|---|")
    for (task, gamma), table in values(config, asked.gammas, asked.places).items():
        env = replace(config.env, task=task)
        best = lambda p, env=env, table=table: ACTIONS[table[place(env, p, asked.places)].argmax(-1)]
        success = [f"{100 * play_maze(env, best, 200, anywhere=way).success.mean():.0f}" for way in (False, True)]
        print(f"| {task} | {gamma} | {' | '.join(success)} |", flush=True)


if __name__ == "__main__":
    main()
