"""Data that scripted policies collect in a maze, made on the spot, and rewards for it. Framework-free.

Trajectories lie one after the other, length + 1 rows each: row t holds the position s_t, the action a_t of the policy
there, and whether the trajectory ends with it. The action of a last row was not carried out. `transitions` gives pairs
instead.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float32, Int32

from ...errors import UsageError
from ...random import random_numpy as random
from ...ranges import Count, NotNegative, Seed, check_value
from .maze_numpy import Maze, on_grain
from .navigator_numpy import navigate
from .params import MazeParams

Style = Literal["navigate", "explore"]
HOLD = 10
"""Steps for which an explorer keeps its direction."""
START, GOAL, NOISE, DIRECTION = range(4)  # of the streams of a seed


class Rows(NamedTuple):
    """Trajectories, row by row; the last row of each is terminal."""

    observations: Float32[np.ndarray, "rows 2"]
    actions: Float32[np.ndarray, "rows 2"]
    terminals: Float32[np.ndarray, " rows"]


class Transitions(NamedTuple):
    """Steps of trajectories; the last step of each is terminal."""

    observations: Float32[np.ndarray, "n 2"]
    actions: Float32[np.ndarray, "n 2"]
    next_observations: Float32[np.ndarray, "n 2"]
    terminals: Float32[np.ndarray, " n"]


def collect(
    params: MazeParams,
    episodes: int = 500,
    length: int = 200,
    seed: int = 0,
    noise: float | None = None,
    style: Style = "navigate",
) -> Rows:
    """Trajectories of `length` steps that begin anywhere in the maze, with Gaussian noise in all actions.

    `navigate` goes to a random cell, and to another one when it is there; `explore` goes in a random direction, and in
    another one after HOLD steps. The task plays no part. `noise` is that of the params if it is None.
    """
    noise = params.noise if noise is None else noise
    given = {"episodes": (episodes, Count), "length": (length, Count), "seed": (seed, Seed)}
    for name, (value, kind) in (given | {"noise": (noise, NotNegative), "style": (style, Style)}).items():
        check_value(name, value, kind)
    maze, stream, steps = Maze(params), lambda number: random.fold_in(random.key(seed), number), length + 1
    shifted = np.float32(noise) * random.normal(stream(NOISE), (steps, episodes, 2))
    wanted = _cells(params, random.uniform(stream(GOAL), (steps, episodes)))
    heading = random.normal(stream(DIRECTION), (-(-steps // HOLD), episodes, 2))
    heading /= np.sqrt(np.square(heading).sum(-1, keepdims=True))
    position = anywhere(params, random.uniform(stream(START), (episodes, 3)))
    observations, actions = np.empty((2, steps, episodes, 2), np.float32)
    goal = wanted[0]
    for t in range(steps):
        if style == "navigate":
            goal = np.where(maze.reached(position, params.centre(goal)), wanted[t], goal)
            action = navigate(params, position, goal, shifted[t])
        else:
            action = np.clip(heading[t // HOLD] + shifted[t], np.float32(-1), np.float32(1))
        observations[t], actions[t] = position, action
        position = maze.move(position, action)
    terminals = np.zeros((episodes, steps), np.float32)
    terminals[:, -1] = 1
    in_turn = lambda x: x.swapaxes(0, 1).reshape(-1, 2)
    return Rows(in_turn(observations), in_turn(actions), terminals.reshape(-1))


def anywhere(params: MazeParams, uniform: Float32[np.ndarray, "n 3"]) -> Float32[np.ndarray, "n 2"]:
    """Positions near the centres of free cells, each cell as likely as the others."""
    shift = on_grain((uniform[:, 1:] - np.float32(0.5)) * np.float32(2 * params.jitter))
    return params.centre(_cells(params, uniform[:, 0])) + shift


def transitions(rows: Rows) -> Transitions:
    """(s_t, a_t, s_t+1) of every step, as OGBench's loader has them: last rows are dropped."""
    last = rows.terminals > 0
    if not last.any() or not last[-1]:
        raise UsageError("rows: expected trajectories, the last row of each terminal, got a last row that is not.")
    stays, ends = ~last[:-1], last[1:]
    return Transitions(
        rows.observations[:-1][stays],
        rows.actions[:-1][stays],
        rows.observations[1:][stays],
        ends[stays].astype(np.float32),
    )


def relabel(
    params: MazeParams, positions: Float32[np.ndarray, "n 2"]
) -> tuple[Float32[np.ndarray, " n"], Float32[np.ndarray, " n"]]:
    """Rewards and masks of the task: success = ||position - goal|| <= tolerance, r = success - 1, mask = 1 - success.

    Given `next_observations` they are what the world gives for these steps: a reward is that of the position after the
    move, and nothing is bootstrapped where the world terminates. OGBench's files of single tasks are labelled by the
    position before it, which `observations` give.
    """
    success = Maze(params).reached(positions, params.goal).astype(np.float32)
    return success - np.float32(1), np.float32(1) - success


def _cells(params: MazeParams, uniform: Float32[np.ndarray, "*shape"]) -> Int32[np.ndarray, "*shape"]:
    """Free cells, each as likely as the others."""
    return params.free[(uniform * np.float32(len(params.free))).astype(np.int32)]
