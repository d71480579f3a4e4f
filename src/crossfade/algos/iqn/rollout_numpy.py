"""Playing an episode of every game on the host, by a policy of either framework. Twin: rollout_jax.py."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int8

from ...envs.game import Game
from .batch import Episode, Noise
from .config import IQNConfig
from .replay import gap
from .risk_numpy import distort_all


@runtime_checkable
class Act(Protocol):
    """Agents at work."""

    def __call__(self, agent: int, stack: np.ndarray, fractions: np.ndarray, /) -> np.ndarray:
        """The greedy action of an agent in every game, (worlds,) int32.

        `stack`, (worlds, frames * observation), is what it saw before and sees now, oldest first; `fractions`, (worlds,
        acting_quantiles), are distorted already. Both are in the dtype of the networks.
        """
        ...


def play(
    game: Game,
    act: Act,
    history: Int8[np.ndarray, "worlds agents frames_before observation"],
    noise: Noise,
    epsilon: Float[np.ndarray, " agents"],
    config: IQNConfig,
) -> tuple[Episode, Any]:
    """An episode of every game, and the states in which they end.

    `history` is what agents saw before the episode. An agent acts at random where `noise.explore` is below its epsilon,
    and greedily elsewhere: `act` is not asked if it explores in every game, and is given the observations that the
    agent has seen, oldest first, and fractions distorted as `risk` says.
    """
    turns, agents, before = game.turns, range(game.agents), gap(config)
    # All frames of the episode in a row, the history first: the stack of turn t are `frames` rows from t on.
    frames = np.empty((config.worlds, game.agents, before + turns, game.observation_dim), np.int8)
    frames[:, :, :before] = history
    action = np.empty((turns, config.worlds, game.agents), np.int32)
    reward = np.empty(action.shape, np.float32)
    explore = noise.explore < epsilon.astype(np.float32)
    everywhere, nowhere = explore.all(1).tolist(), (~explore.any(1)).tolist()
    fractions = distort_all(noise.acting.astype(config.dtype, copy=False), config)

    def decide(t: int, agent: int, state: Any) -> np.ndarray:
        """What an agent does, on what it sees now."""
        frames[:, agent, before + t] = game.observe(state, agent)
        random = noise.action[t, :, agent]
        if everywhere[t][agent]:
            return random
        stack = frames[:, agent, t : t + config.frames].astype(config.dtype).reshape(config.worlds, -1)
        greedy = act(agent, stack, fractions[t, :, agent])
        return greedy if nowhere[t][agent] else np.where(explore[t, :, agent], random, greedy)

    state = game.begin(noise.start)
    for t, order in enumerate(noise.order.tolist()):
        state = game.start_turn(state, noise.turn[t])
        if config.moves != "sequential":
            for agent in agents:
                action[t, :, agent] = decide(t, agent, state)
        if config.moves == "simultaneous":
            together = np.broadcast_to(noise.order[t], action[t].shape)
            state, reward[t] = game.move_together(state, action[t], together, noise.reward[t])
            continue
        for agent in order:
            if config.moves == "sequential":
                action[t, :, agent] = decide(t, agent, state)
            state, reward[t, :, agent] = game.move(state, agent, action[t, :, agent], noise.reward[t, :, agent])

    observation = np.ascontiguousarray(np.moveaxis(frames[:, :, before:], 2, 0))
    last = np.stack([game.observe(state, agent) for agent in agents], axis=1)
    return Episode(observation, action, reward, last), state


def returns(episode: Episode) -> dict[str, float]:
    """To be logged: the sum of rewards over the turns, of all agents and of each, as means over the games."""
    each = episode.reward.sum(0, dtype=np.float64).mean(0).tolist()
    return {"return": float(sum(each))} | {f"return_{agent}": value for agent, value in enumerate(each)}
