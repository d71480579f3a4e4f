"""Collecting on the host: environments in NumPy driven by a policy in either framework."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from ...nn.normalizer_numpy import merge, normalize
from ...random import random_numpy as random
from ...random.shuffling_numpy import shuffled
from .batch import Carry, Noise, Rollout
from .config import START_NUMBERS, PPOConfig

Act = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]
"""(observation, mask, gumbel) -> (action, its log-probability, value of the state)."""
Value = Callable[[np.ndarray], np.ndarray]


@runtime_checkable
class Envs(Protocol):
    """Environments that are stepped together; they hold their states."""

    state: Any

    def observe(self) -> np.ndarray: ...
    def mask(self) -> np.ndarray: ...
    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Reward, terminated, truncated."""
        ...

    def restart(self, where: np.ndarray, uniform: np.ndarray) -> None:
        """Begins a new episode in some environments, in the way that some uniform numbers name."""
        ...


class Seen(NamedTuple):
    """What the policy saw: the host has memory to keep it, so nothing is observed twice."""

    observation: Any  # (steps, envs, o)
    mask: Any  # (steps, envs, a)


class Collected(NamedTuple):
    """All that an update needs."""

    rollout: Rollout  # its `state` is what was `Seen`
    order: np.ndarray  # (epochs, steps * envs)
    learning_rate: float
    info: dict[str, float]  # about the episodes and the actions


def draw(key: np.ndarray, config: PPOConfig, n_actions: int) -> Noise:
    """The randomness of one update from its key."""
    gumbel, start, order = random.split(key, 3)
    shape = config.n_steps, config.n_envs
    return Noise(
        random.gumbel(gumbel, (*shape, n_actions), config.dtype),
        random.uniform(start, (*shape, START_NUMBERS), "float32"),
        np.stack([shuffled(random.fold_in(order, e), shape[0] * shape[1]) for e in range(config.epochs)]),
    )


def collect(
    act: Act, value: Value, envs: Envs, carry: Carry, noise: Noise, config: PPOConfig
) -> tuple[Rollout, Carry, dict[str, float]]:
    """`n_steps` of every environment; what goes on to the next update; what there is to log.

    Observations are normalised by the statistics of the rollouts before. This rollout's raw ones enter the next.
    """
    rows, statistics = [], carry.statistics
    returns, lengths = carry.episode_return, carry.episode_length
    finished = np.zeros(3)  # episodes, and the sums of their returns and lengths

    def see(raw: np.ndarray) -> np.ndarray:
        return normalize(carry.statistics, raw) if config.normalize_observations else raw

    for t in range(config.n_steps):
        raw, mask = envs.observe().astype(config.dtype), envs.mask()
        observation = see(raw)
        action, log_prob, before = act(observation, mask, noise.gumbel[t])
        reward, terminated, truncated = envs.step(action)
        reward, ended = reward.astype(config.dtype), terminated | truncated
        after = np.zeros_like(before)
        if truncated.any() or t == config.n_steps - 1:
            after = value(see(envs.observe().astype(config.dtype)))
        rows.append(Rollout(Seen(observation, mask), action, log_prob, before, after, reward, terminated, truncated))
        if config.normalize_observations:
            statistics = merge(statistics, raw)
        returns, lengths = returns + reward, lengths + np.int32(1)
        if ended.any():
            finished += ended.sum(), returns[ended].sum(), lengths[ended].sum()
            returns, lengths = np.where(ended, 0, returns).astype(config.dtype), np.where(ended, 0, lengths)
            envs.restart(ended, noise.start[t])

    rollout = Rollout(
        Seen(*map(np.stack, zip(*(row.state for row in rows), strict=True))),
        *map(np.stack, list(zip(*rows, strict=True))[1:]),
    )
    # The state after a step is the next step's state, unless the episode was cut off there.
    rollout.next_value[:-1] = np.where(rollout.truncated, rollout.next_value, np.roll(rollout.value, -1, 0))[:-1]
    return rollout, Carry(envs.state, statistics, returns, lengths.astype(np.int32)), _info(rollout, finished)


def _info(rollout: Rollout, finished: np.ndarray) -> dict[str, float]:
    """Means over the steps, and over the episodes that ended; 0 where none did."""
    episodes, total_return, total_length = map(float, finished)
    mask, action = rollout.state.mask, rollout.action
    legal = np.take_along_axis(mask, action[..., None].astype(np.int64), -1)
    return {
        "mean_reward": float(rollout.reward.mean()),
        "mean_episode_return": total_return / max(episodes, 1.0),
        "mean_episode_length": total_length / max(episodes, 1.0),
        "episodes": episodes,
        **{f"action_share_{i}": float((action == i).mean()) for i in range(mask.shape[-1])},
        "illegal": float((~legal).sum()),
    }
