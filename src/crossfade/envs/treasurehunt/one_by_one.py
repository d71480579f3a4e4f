"""Games as objects, stepped one after the other, behind the face of a game: what PyTorch code steps today.

They are computed as the published system computes them (published.py), so that mode `torch` is the original loop.
"""

from dataclasses import dataclass

import numpy as np

from .published import PublishedGame
from .sizes import Sizes

Games = list[PublishedGame]


@dataclass(frozen=True)
class OneByOne(Sizes):
    """A state are the games themselves, (worlds,) of them: every function changes them in place."""

    def begin(self, uniform: np.ndarray, /) -> Games:
        games = [PublishedGame(self.params) for _ in uniform]
        for game, numbers in zip(games, uniform, strict=True):
            game.begin(numbers)
        return games

    def start_turn(self, state: Games, uniform: np.ndarray, /) -> Games:
        for game, numbers in zip(state, uniform, strict=True):
            game.start_turn(numbers)
        return state

    def observe(self, state: Games, agent: int, /) -> np.ndarray:
        return np.stack([game.observe(agent) for game in state])

    def move(self, state: Games, agent: int, action: np.ndarray, uniform: np.ndarray, /) -> tuple[Games, np.ndarray]:
        each = zip(state, action.tolist(), uniform.tolist(), strict=True)
        return state, np.array([game.move(agent, own, number) for game, own, number in each], np.float32)

    def move_together(
        self, state: Games, action: np.ndarray, order: np.ndarray, uniform: np.ndarray, /
    ) -> tuple[Games, np.ndarray]:
        each = zip(state, action, order, uniform, strict=True)
        return state, np.stack([game.move_together(own, first, numbers) for game, own, first, numbers in each])
