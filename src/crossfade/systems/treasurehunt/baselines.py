"""Players who have learned nothing, on the games by which policies are judged."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float64

from ...algos.iqn import rollout_numpy
from ...algos.iqn.batch import Noise
from ...envs.game import make_game
from ...envs.treasurehunt.params import ACTIONS, TreasurehuntParams
from .config import TreasurehuntConfig


def named(params: TreasurehuntParams, metrics: Mapping[str, Any]) -> dict[str, float]:
    """What they earn, all agents together, by the words for them; none that has nothing to go to."""
    known = {"random play": "eval/random"} | ({"nearest-item rule": "eval/nearest"} if _good(params) else {})
    return {label: metrics[name] for label, name in known.items() if name in metrics}


def nearest(params: TreasurehuntParams) -> rollout_numpy.Act:
    """Goes to the nearest item of positive value in sight (by steps; of equal ones the first, row by row), along the
    longer way first; down a row of equal steps; with nothing in sight it goes up, down, left, right by the stack."""
    size, radius = params.window, params.radius
    good = [params.channels.index(name) for name in _good(params)]
    rows, columns = np.divmod(np.arange(size**2), size)
    down, right = rows - radius, columns - radius
    steps = np.abs(down) + np.abs(right)
    vertical = np.abs(down) >= np.abs(right)
    towards = np.where(vertical, np.where(down < 0, 0, 1), np.where(right < 0, 2, 3)).astype(np.int32)

    def act(agent: int, stack: np.ndarray, fractions: np.ndarray) -> np.ndarray:
        seen = stack[:, -params.observation_dim :][:, : len(params.channels) * size**2]
        there: np.ndarray = seen.reshape(len(stack), -1, size**2)[:, good].sum(1) > 0
        chosen = np.where(there, steps, 2 * size).argmin(1)
        wander = (fractions[:, 0] * len(ACTIONS)).astype(np.int32)
        return np.where(there.any(-1), towards[chosen], wander)

    return act


def _good(params: TreasurehuntParams) -> list[str]:
    """Items that are worth taking on average."""
    return [item.name for item in params.table if item.value + item.chance * item.change > 0]


@lru_cache(maxsize=8)
def returns(config: TreasurehuntConfig, player: str) -> Float64[np.ndarray, "episodes agents"]:
    """What each agent earns in each of the games, if all play at random or all go to the nearest item."""
    from .evaluation import draw_games

    episode = play(config, nearest(config.env), draw_games(config), epsilon=float(player == "random"))
    return episode.reward.sum(0, dtype=np.float64)


def play(config: TreasurehuntConfig, act: Any, noise: Noise, epsilon: float = 0.0) -> Any:
    """The games of `noise` on the host."""
    game = make_game(config.env, "numpy")
    history = np.zeros((config.worlds, game.agents, config.frames - 1, game.observation_dim), np.int8)
    return rollout_numpy.play(game, act, history, noise, np.full(game.agents, epsilon), config)[0]
