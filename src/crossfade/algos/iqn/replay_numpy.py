"""Replay that stacks frames, in NumPy; replay.py is its specification. Twin: replay_jax.py.

All are pure functions: what they are given stays as it is.
"""

import numpy as np
from jaxtyping import Bool, Float32, Int8, Int32

from ...envs.game import Game
from .batch import Episode, Replay, Transitions
from .config import IQNConfig
from .replay import gap, powers, rows


def start(config: IQNConfig, game: Game) -> Replay:
    """Replay before the first episode."""
    shape = (config.worlds, game.agents, config.memory)
    return Replay(
        observation=np.zeros((*shape, game.observation_dim), np.int8),
        action=np.zeros(shape, np.int32),
        reward=np.zeros(shape, np.float32),
        turn=np.full(config.memory, -1, np.int32),
        index=np.zeros((), np.int32),
        size=np.zeros((), np.int32),
        filled=np.zeros((), np.int32),
    )


def open_episode(
    replay: Replay, config: IQNConfig
) -> tuple[Replay, Int8[np.ndarray, "worlds agents frames_before observation"]]:
    """Replay with the gap before an episode, and every agent's history at its start, oldest first."""
    observation, action, reward, turn = replay[:4]
    passed = (replay.index + np.arange(gap(config))) % config.memory
    turn = turn.copy()
    turn[passed] = -1
    if not config.has("stale_history"):
        observation, action, reward = observation.copy(), action.copy(), reward.copy()
        for array in (observation, action, reward):
            array[:, :, passed] = 0
    index, filled = _advanced(replay, gap(config), config)
    return Replay(observation, action, reward, turn, index, replay.size, filled), observation[:, :, passed]


def store(replay: Replay, episode: Episode, config: IQNConfig) -> Replay:
    """Replay with an episode of every game, after its gap."""
    observation, action, reward, turn = (array.copy() for array in replay[:4])
    turns = len(episode.action)
    passed = (replay.index + np.arange(rows(config, turns))) % config.memory
    played, after = passed[:turns], passed[turns:]  # the latter is empty with gap_bootstrap
    observation[:, :, played] = np.moveaxis(episode.observation, 0, 2)
    action[:, :, played] = np.moveaxis(episode.action, 0, 2)
    reward[:, :, played] = np.moveaxis(episode.reward, 0, 2)
    observation[:, :, after] = episode.last[:, :, None]
    action[:, :, after] = 0
    reward[:, :, after] = 0
    turn[passed] = np.arange(len(passed))
    index, filled = _advanced(replay, len(passed), config)
    size = np.asarray(np.minimum(replay.size + turns, config.memory), np.int32)
    return Replay(observation, action, reward, turn, index, size, filled)


def steps_ahead(replay: Replay, turns: int, config: IQNConfig) -> Int32[np.ndarray, " memory"]:
    """Turns from the state to the next state of the window that ends in each row, m."""
    if config.has("discount_only"):
        return np.ones(config.memory, np.int32)
    if config.has("unmarked_ends"):
        return np.full(config.memory, config.n_step, np.int32)
    left = np.where(_is_turn(replay, turns), turns - replay.turn, config.n_step)
    return np.minimum(left, config.n_step).astype(np.int32)


def drawable(replay: Replay, turns: int, config: IQNConfig) -> Bool[np.ndarray, " memory"]:
    """Whether the window that ends in each row can be drawn."""
    row, before = np.arange(config.memory), gap(config)
    size = replay.size if config.has("lagging_size") else replay.filled
    bounded = (row >= before) & (row - before < max(1, size - config.frames - 1))
    place = (row - replay.index) % config.memory  # counted from the oldest row
    ahead = steps_ahead(replay, turns, config)
    there = (place - before >= config.memory - replay.filled) & (place + ahead <= config.memory - 1)
    if config.has("straddling_windows"):
        found = bounded
    else:
        found = there & bounded if config.has("lagging_size") else there
    return found if config.has("gap_rows") else found & _is_turn(replay, turns)


def sample(
    replay: Replay, choice: Float32[np.ndarray, "agents ranks"], turns: int, config: IQNConfig
) -> tuple[Transitions, Bool[np.ndarray, ""]]:
    """A batch of each agent, its fractions and noise left out, and whether replay held enough for it.

    It is drawn without replacement: by the smallest numbers of `choice`, (worlds, memory) flattened, among the rows
    that can be drawn.
    """
    can = drawable(replay, turns, config)
    ready = np.asarray(config.worlds * can.sum() >= config.batch_size)
    ranks = np.where(np.tile(can, config.worlds), choice, np.float32(2))
    chosen = np.argsort(ranks, axis=-1, kind="stable")[:, : config.batch_size]
    world, row = np.divmod(chosen, config.memory)
    agent = np.arange(len(chosen))[:, None]
    turn, ahead = replay.turn[row], steps_ahead(replay, turns, config)[row]
    gammas = powers(config)

    stack = np.arange(-gap(config), 1)
    window = (row[..., None] + stack) % config.memory
    next_window = (window + ahead[..., None]) % config.memory
    see = lambda seen: replay.observation[world[..., None], agent[..., None], seen].reshape(*row.shape, -1)

    reward = np.zeros(row.shape, config.dtype)
    for k in range(int(ahead.max())):
        later = replay.reward[world, agent, (row + k) % config.memory].astype(config.dtype)
        reward = np.where(k < ahead, reward + gammas[:, k : k + 1] * later, reward)
    discount = gammas[agent, np.full_like(ahead, config.n_step) if config.has("discount_only") else ahead]
    valid = np.ones(row.shape, config.dtype)
    if not config.has("unmarked_ends"):
        if config.ends == "terminal":
            discount = np.where(turn + ahead == turns, 0, discount)
        valid[(replay.turn[window[..., :-1]] == turns - 1).any(-1)] = 0
    transitions = Transitions(
        state=see(window).astype(config.dtype),
        action=replay.action[world, agent, row],
        reward=reward,
        next_state=see(next_window).astype(config.dtype),
        discount=discount,
        valid=valid,
        fractions=None,
        noise=None,
    )
    return transitions, ready


def _advanced(replay: Replay, passed: int, config: IQNConfig) -> tuple[np.ndarray, np.ndarray]:
    """`index` and `filled` after the index has passed some rows."""
    index, filled = (replay.index + passed) % config.memory, np.minimum(replay.filled + passed, config.memory)
    return np.asarray(index, np.int32), np.asarray(filled, np.int32)


def _is_turn(replay: Replay, turns: int) -> Bool[np.ndarray, " memory"]:
    """Whether a row holds a turn: not a gap, nor the observation after the last turn."""
    return (replay.turn >= 0) & (replay.turn < turns)
