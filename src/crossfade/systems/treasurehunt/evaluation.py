"""What a policy earns when it plays greedily, beside players who have learned nothing.

Every policy is judged by the same games, whatever its seed. Training looks at a few figures now and then; with an
effort the same policy also plays in every kind of turns and every order of agents, on the same games.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float64

from ...algos.iqn.batch import Episode, Noise
from ...algos.iqn.noise_numpy import draw
from ...algos.iqn.replay import gap
from ...envs.game import MOVES, ORDERS, make_game
from ...random import random_numpy as random
from ...ranges import Count
from ...run.evaluation import Effort, Evaluation
from . import baselines
from .config import TreasurehuntConfig
from .shown import animate

GAMES = 2026
"""Seed of the games by which policies are judged."""
SHOWN = 200
"""Turns of the game that is kept for a picture, at most."""
Player = Callable[[TreasurehuntConfig, Noise], Episode]
"""Plays the games of `noise`, as a config for judging (`judging`) says."""


@dataclass(frozen=True)
class TreasurehuntEffort(Effort):
    """How much `crossfade eval` computes."""

    episodes: Count = 256
    """Episodes in each kind of turns and order of agents."""


def judging(config: TreasurehuntConfig, episodes: int, **changes: Any) -> TreasurehuntConfig:
    """The config of games side by side that nothing is learned from."""
    least = gap(config) + config.env.turns + 2 + 2 * config.frames + config.n_step
    small = {"batch_size": 1, "quantiles": 1, "memory": least, "legacy": False, "quirks": ()}
    return replace(config, worlds=episodes, seed=0, steps=1, mode="torch", devices=1, **small, **changes)


@lru_cache(maxsize=4)
def draw_games(config: TreasurehuntConfig) -> Noise:
    """The randomness of the games of a config for judging."""
    return draw(random.key(GAMES), make_game(config.env, "numpy"), 0, config)


def evaluate(config: TreasurehuntConfig, player: Player, effort: TreasurehuntEffort | None = None) -> Evaluation:
    """The greedy policy on the games; with an effort, also the same figures on more of them and in other turns."""
    metrics, arrays = judge_on(config, player, config.eval_episodes)
    if effort is None:
        return Evaluation(metrics, arrays)
    figures, arrays = judge_on(config, player, effort.episodes)
    study = {"episodes": effort.episodes, "figures": figures, "turns": compare_turns(config, player, effort)}
    animation = animate(config.env, arrays)
    files: dict[str, str | bytes] = {} if animation is None else {"episode.gif": animation}
    return Evaluation(metrics, arrays, study=study, files=files)


def judge_on(
    config: TreasurehuntConfig, player: Player, episodes: int
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Figures of the policy on so many games, with standard errors over them, and what pictures show."""
    judged = judging(config, episodes)
    noise = draw_games(judged)
    episode = Episode(*map(np.asarray, player(judged, noise)))
    each = episode.reward.sum(0, dtype=np.float64)
    position = by_position(episode, noise)
    bumps = episode.reward == np.float32(config.env.wall_value)
    metrics = {
        "eval/return": each.sum(1).mean(),
        "eval/return_se": _error(each.sum(1)),
        **{f"eval/return_{agent}": value for agent, value in enumerate(each.mean(0))},
        "eval/first_mover": (position[:, 0] - position[:, -1]).mean(),
        "eval/first_mover_se": _error(position[:, 0] - position[:, -1]),
        **({"eval/bumps": bumps.sum((0, 2)).mean()} if config.env.wall_value else {}),
        "eval/random": baselines.returns(judged, "random").sum(1).mean(),
        "eval/nearest": baselines.returns(judged, "nearest").sum(1).mean(),
    }
    arrays = {"returns": each, "positions": position, **_shown(config, episode, noise)}
    return {name: float(value) for name, value in metrics.items()}, arrays


def by_position(episode: Episode, noise: Noise) -> Float64[np.ndarray, "worlds agents"]:
    """What those who act first, second, ... in their turns earn in each game."""
    ordered = np.take_along_axis(episode.reward, noise.order[:, None, :].astype(np.int64), 2)
    return ordered.sum(0, dtype=np.float64)


def compare_turns(config: TreasurehuntConfig, player: Player, effort: TreasurehuntEffort) -> list[dict[str, Any]]:
    """The policy in every kind of turns and order of agents, on the same games: return and first mover's advantage,
    with standard errors; and the mean difference, game by game, from the turns that it learned in; these are
    marked as its own."""
    found, own = [], None
    for moves, order in [(config.moves, config.order), *((m, o) for m in MOVES for o in ORDERS)]:
        judged = judging(config, effort.episodes, moves=moves, order=order)
        noise = draw_games(judged)
        episode = Episode(*map(np.asarray, player(judged, noise)))
        total, position = episode.reward.sum((0, 2), dtype=np.float64), by_position(episode, noise)
        own = total if own is None else own
        first = position[:, 0] - position[:, -1]
        row = {"moves": moves, "order": order, "return": float(total.mean()), "return_se": _error(total)}
        row |= {"first_mover": float(first.mean()), "first_mover_se": _error(first)}
        row |= {"difference": float((total - own).mean()), "difference_se": _error(total - own)}
        row |= {"own": (moves, order) == (config.moves, config.order)}
        found.append(row)
    return found[1:]


def _shown(config: TreasurehuntConfig, episode: Episode, noise: Noise) -> dict[str, np.ndarray]:
    """The game of the median return for a picture, at the start and after every turn, of which the first are enough:
    the map, (row, column) of each agent on it, its role, and what it has earned."""
    total = episode.reward.sum((0, 2))
    world = int(np.argsort(total, kind="stable")[len(total) // 2])
    game = make_game(config.env, "numpy")
    state = game.begin(noise.start[world])
    states = [state]
    for t, order in enumerate(noise.order[:SHOWN]):
        state = game.start_turn(state, noise.turn[t, world])
        action, chance = episode.action[t, world], noise.reward[t, world]
        if config.moves == "simultaneous":
            state, _ = game.move_together(state, action, order, chance)
        else:
            for agent in order.tolist():
                state, _ = game.move(state, agent, action[agent], chance[agent])
        states.append(state)
    grids, places, roles = map(np.stack, zip(*states, strict=True))
    earned = episode.reward[:SHOWN, world].cumsum(0, dtype=np.float64)
    return {
        "shown_grids": config.env.crop(grids),
        "shown_places": np.stack(np.divmod(places, config.env.columns), -1) - config.env.radius,
        "shown_roles": roles,
        "shown_earned": np.vstack([np.zeros_like(earned[:1]), earned]),
    }


def _error(values: Float64[np.ndarray, " episodes"]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
