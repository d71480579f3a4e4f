"""A game of a few numbers and replays of it, for the tests of IQN's data path in NumPy."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from crossfade.algos.iqn import replay_numpy
from crossfade.algos.iqn.batch import Episode, Replay
from crossfade.algos.iqn.config import IQNConfig


@dataclass(frozen=True)
class Config(IQNConfig):
    players: int = 1
    n_step: int = 3

    @property
    def agents(self):
        return self.players


class Ring(NamedTuple):
    place: np.ndarray
    pot: np.ndarray


@dataclass(frozen=True)
class Toy:
    """Agents go round a ring of 7 cells; whoever comes to an even one takes what is in the pot, so order counts."""

    agents: int = 3
    turns: int = 6
    observation_dim: int = 3
    n_actions: int = 3
    turn_numbers: int = 1

    @property
    def start_numbers(self):
        return self.agents

    def begin(self, uniform):
        return Ring(np.floor(uniform * 7).astype(np.int32), np.zeros(uniform.shape[:-1], np.int32))

    def start_turn(self, state, uniform):
        return state._replace(pot=state.pot + np.floor(uniform[..., 0] * 3).astype(np.int32))

    def observe(self, state, agent):
        own = np.take_along_axis(state.place, self._which(state, agent), -1)[..., 0]
        return np.stack([own, np.minimum(state.pot, 9), state.place.sum(-1) % 5], -1).astype(np.int8)

    def move(self, state, agent, action, uniform):
        which = self._which(state, agent)
        new = (np.take_along_axis(state.place, which, -1)[..., 0] + action + 1) % 7
        place = state.place.copy()
        np.put_along_axis(place, which, new[..., None], -1)
        takes = new % 2 == 0
        reward = np.where(takes, state.pot + uniform, np.float32(-1)).astype(np.float32)
        return Ring(place, np.where(takes, 0, state.pot).astype(np.int32)), reward

    def move_together(self, state, action, order, uniform):
        reward = np.zeros(action.shape, np.float32)
        for k in range(self.agents):
            agent = order[..., k : k + 1]
            of = lambda x, agent=agent: np.take_along_axis(x, agent, -1)[..., 0]
            state, got = self.move(state, agent[..., 0], of(action), of(uniform))
            np.put_along_axis(reward, agent, (got + np.float32(100 * k))[..., None], -1)
        return state, reward

    def _which(self, state, agent):
        return np.broadcast_to(agent, state.pot.shape)[..., None]


def random_episode(rng: np.random.Generator, game: Toy, worlds: int) -> Episode:
    """Numbers without a game; observations are not 0, so that they differ from a gap."""
    shape = (game.turns, worlds, game.agents)
    return Episode(
        rng.integers(1, 100, (*shape, game.observation_dim)).astype(np.int8),
        rng.integers(0, 4, shape).astype(np.int32),
        rng.normal(size=shape).astype(np.float32),
        rng.integers(1, 100, (*shape[1:], game.observation_dim)).astype(np.int8),
    )


def after(episodes: int, config: IQNConfig, game: Toy) -> Replay:
    rng, replay = np.random.default_rng(0), replay_numpy.start(config, game)
    for _ in range(episodes):
        replay, _ = replay_numpy.open_episode(replay, config)
        replay = replay_numpy.store(replay, random_episode(rng, game, config.worlds), config)
    return replay


def drawn(replay: Replay, turns: int, config: IQNConfig) -> list[int]:
    return np.flatnonzero(replay_numpy.drawable(replay, turns, config)).tolist()


# The correct replay, by hand: 4 turns, 3 frames, 2 steps; episode e sees 10 e + t and gets 8 (t + 1) in turn t

SMALL = Toy(agents=1, turns=4, observation_dim=1)


def small(**settings) -> IQNConfig:
    return Config(**{"frames": 3, "n_step": 2, "memory": 24, "batch_size": 4, "gamma": (0.5,), **settings})


def fill(episodes: int, config: IQNConfig) -> Replay:
    replay = replay_numpy.start(config, SMALL)
    for e in range(1, episodes + 1):
        replay, _ = replay_numpy.open_episode(replay, config)
        turns = np.arange(4).reshape(4, 1, 1)
        episode = Episode(
            (10 * e + turns[..., None]).astype(np.int8),
            ((e + turns) % 3).astype(np.int32),
            (8.0 * (turns + 1)).astype(np.float32),
            np.full((1, 1, 1), 10 * e + 4, np.int8),
        )
        replay = replay_numpy.store(replay, episode, config)
    return replay


class Window(NamedTuple):
    state: list
    action: int
    reward: float
    next_state: list
    discount: float
    valid: float


def windows(replay: Replay, config: IQNConfig) -> dict[int, Window]:
    """What each row gives that can be drawn; rising numbers draw rows in their order."""
    rows = drawn(replay, 4, config)
    rising = (np.arange(config.memory, dtype=np.float32) / np.float32(config.memory))[None]
    batch, ready = replay_numpy.sample(replay, rising, 4, replace(config, batch_size=len(rows)))
    assert ready
    columns = (getattr(batch, name)[0].tolist() for name in Window._fields)
    return {row: Window(*values) for row, *values in zip(rows, *columns, strict=True)}


FIRST = {
    2: Window([0, 0, 10], 1, 8 + 8, [10, 11, 12], 0.25, 1),
    3: Window([0, 10, 11], 2, 16 + 12, [11, 12, 13], 0.25, 1),
    4: Window([10, 11, 12], 0, 24 + 16, [12, 13, 14], 0.25, 1),
    5: Window([11, 12, 13], 1, 32, [12, 13, 14], 0.5, 1),
}
