"""Playing an episode of every world on the host, by a policy of either framework. Twin: rollout_jax.py."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int8

from ...envs.game import Game
from .batch import Episode, Noise
from .config import IQNConfig
from .replay import gap
from .risk_numpy import distort


@runtime_checkable
class Act(Protocol):
    """The greedy action of an agent in every world, (worlds,) int32.

    `stack` (worlds, frames * observation) and `fractions` (worlds, acting_quantiles) are in the dtype of the networks.
    """

    def __call__(self, agent: int, stack: np.ndarray, fractions: np.ndarray, /) -> np.ndarray: ...


def play(
    game: Game,
    act: Act,
    history: Int8[np.ndarray, "worlds agents frames_before observation"],
    noise: Noise,
    epsilon: Float[np.ndarray, " agents"],
    config: IQNConfig,
) -> tuple[Episode, Any]:
    """An episode of every world, and the states in which it ends.

    An agent acts at random where `noise.explore` is below its epsilon; `act` is not asked if that is so in all worlds.
    """
    turns, agents, before = game.turns, range(game.agents), gap(config)
    # All frames of the episode in a row, the history first: the stack of turn t are `frames` rows from t on.
    frames = np.empty((config.worlds, game.agents, before + turns, game.observation_dim), np.int8)
    frames[:, :, :before] = history
    action = np.empty((turns, config.worlds, game.agents), np.int32)
    reward = np.empty(action.shape, np.float32)
    explore = noise.explore < epsilon.astype(np.float32)
    everywhere, nowhere = explore.all(1).tolist(), (~explore.any(1)).tolist()
    risks = zip(config.each("risk"), config.each("risk_level"), strict=True)
    acting = noise.acting.astype(config.dtype, copy=False)
    fractions = [distort(acting[:, :, agent], *risk) for agent, risk in enumerate(risks)]

    def decide(t: int, agent: int, state: Any) -> np.ndarray:
        """What an agent does, on what it sees now."""
        frames[:, agent, before + t] = game.observe(state, agent)
        random = noise.action[t, :, agent]
        if everywhere[t][agent]:
            return random
        stack = frames[:, agent, t : t + config.frames].astype(config.dtype).reshape(config.worlds, -1)
        greedy = act(agent, stack, fractions[agent][t])
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
    """To be logged: the sum of the rewards of all agents, and that of each; means over worlds."""
    each = episode.reward.sum(0, dtype=np.float64).mean(0).tolist()
    return {"return": float(sum(each))} | {f"return_{agent}": value for agent, value in enumerate(each)}
