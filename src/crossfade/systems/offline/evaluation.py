"""What a policy learned from data is worth: success in its world, and losses on data that it has not learned from.

Every policy is judged by the same episodes, whatever its seed. Those of a task begin in one cell and are much alike: a
policy that is wrong in one place on the way fails in all of them. So as many others begin anywhere in the maze, with
the same goal (`eval/anywhere`). Beside it stand those who collected the data and one who acts at random.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int

from ...envs.maze.data import anywhere as positions_anywhere
from ...envs.maze.maze_numpy import Maze
from ...envs.maze.navigator_numpy import navigate
from ...envs.maze.params import MazeParams
from ...random import random_numpy as random
from ...ranges import Count
from ...run.evaluation import Effort, Evaluation
from .config import OfflineDataConfig
from .data import Data

EPISODES = 2026
"""Seed of the episodes by which policies are judged."""
Act = Callable[[np.ndarray], np.ndarray]
"""Actions (episodes, action) for normalised observations (episodes, *observation)."""


@dataclass(frozen=True)
class OfflineEffort(Effort):
    """How much `crossfade eval` computes."""

    episodes: Count = 500
    """Episodes of the task."""


class Played(NamedTuple):
    """Episodes side by side."""

    success: Bool[np.ndarray, " episodes"]
    length: Int[np.ndarray, " episodes"]
    returns: Float[np.ndarray, " episodes"]
    paths: Float32[np.ndarray, "steps episodes 2"]
    """Positions; a ball that has arrived stays there."""


def evaluate(
    config: OfflineDataConfig,
    data: Data,
    act: Act,
    validate: Callable[[], dict[str, float]],
    effort: OfflineEffort | None = None,
) -> Evaluation:
    """The policy in the maze or in the config's Gymnasium environment, and its losses on held-out data."""
    episodes = config.eval_episodes if effort is None else effort.episodes
    losses = {f"eval/{name}": value for name, value in validate().items()}
    if config.data is not None:
        if config.gym is None:
            return Evaluation(losses, test_set=config.test_set)
        from .gymnasium_evaluation import play

        figures = _figures(play(config, data, act, episodes))
        return Evaluation({**figures, **losses}, test_set=config.test_set)
    seen = lambda position: data.statistics.apply(position).astype(config.dtype)

    def play_policy(*, anywhere: bool) -> Played:
        stacked = _stacking(config.frame_stack)
        return play_maze(config.env, lambda position: act(stacked(seen(position))), episodes, anywhere=anywhere)

    played = play_policy(anywhere=False)
    figures = {**_figures(played), "eval/anywhere": float(play_policy(anywhere=True).success.mean())}
    scripted = {f"eval/{name}": _baseline(config.env, name, episodes) for name in ("scripted", "random")}
    return Evaluation({**figures, **scripted, **losses}, {"paths": played.paths, "success": played.success})


def play_maze(params: MazeParams, act: Act, episodes: int, *, anywhere: bool = False) -> Played:
    """Episodes of the task by a policy that is given positions; `anywhere` says where they begin."""
    maze, key = Maze(params), random.key(EPISODES)
    state = maze.begin(None, None, random.uniform(key, (episodes, maze.start_numbers)))
    if anywhere:
        state = state._replace(position=positions_anywhere(params, random.uniform(key, (episodes, 3))))
    success, length, paths = np.zeros(episodes, bool), np.full(episodes, params.limit), [state.position]
    for t in range(params.limit):
        after, outcome = maze.step(None, None, state, act(maze.observe(None, None, state)).astype(np.float32))
        position = np.where(success[:, None], state.position, after.position)
        arrived = outcome.terminated & ~success
        length[arrived], success = t + 1, success | arrived
        state = after._replace(position=position)
        paths.append(position)
        if success.all():
            break
    return Played(success, length, success - length.astype(np.float64), np.stack(paths))


def _stacking(frames: int) -> Callable[[np.ndarray], np.ndarray]:
    """Joins each observation of episodes that begin together to those before it; the first one counts for all."""
    held: deque[np.ndarray] = deque(maxlen=frames)

    def stacked(seen: np.ndarray) -> np.ndarray:
        held.extend([seen] * (frames if not held else 1))
        return np.concatenate(held, -1)

    return stacked


@lru_cache(maxsize=16)
def _baseline(params: MazeParams, name: str, episodes: int) -> float:
    """The success of the scripted policy without noise, and of random actions."""
    key, goal = random.key(EPISODES + 1), np.full(episodes, params.goal_cell, np.int32)
    if name == "scripted":
        still = np.zeros((episodes, 2), np.float32)
        act = lambda position: navigate(params, position, goal, still)
    else:
        actions = iter(random.uniform(key, (params.limit, episodes, 2), "float32", -1.0, 1.0))
        act = lambda position: next(actions)
    return float(play_maze(params, act, episodes).success.mean())


def _figures(played: Played) -> dict[str, float]:
    success, n = played.success.mean(), len(played.success)
    return {
        "eval/success": float(success),
        "eval/success_se": float(np.sqrt(success * (1 - success) / n)),
        "eval/return": float(played.returns.mean()),
        "eval/length": float(played.length.mean()),
    }
