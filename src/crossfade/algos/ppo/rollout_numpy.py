"""Collecting steps of many environments on the host, by a policy of either framework. Twin: rollout_jax.py."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ...envs.world import Envs, told
from ...nn.distribution import Distribution
from ...nn.normalizer_numpy import Statistics, merge, normalize
from ...random import random_numpy as random
from ...random.shuffling_numpy import shuffled
from .batch import ENTROPY_KEY, Carry, Decision, Noise, Rollout, Seen, in_segments
from .config import PPOConfig
from .hook import Watched


@runtime_checkable
class _Actor(Protocol):
    """`acting_torch.Actor`, or that of acting_jax.py with its results on the host."""

    def act(self, observation: np.ndarray, mask: np.ndarray | None, noise: np.ndarray, /) -> Decision: ...

    def value(self, observation: np.ndarray, /) -> np.ndarray: ...


def draw(key: np.ndarray, config: PPOConfig, actions: Distribution, start_numbers: int) -> Noise:
    """The randomness of one update, from its key."""
    action, start, order = random.split(key, 3)
    shape, numbers = (config.n_steps, config.n_envs), {"gumbel": random.gumbel, "normal": random.normal}
    n = shape[0] * shape[1]

    def permutation(epoch: int) -> np.ndarray:
        own = random.fold_in(order, epoch)
        return in_segments(shuffled(own, config.n_envs), config) if config.segments else shuffled(own, n)

    entropy = None
    if config.samples_entropy:
        of_steps = config.epochs, n, actions.noise_dim
        entropy = random.normal(random.fold_in(key, ENTROPY_KEY), of_steps, config.dtype)
    return Noise(
        numbers[actions.noise](action, (*shape, actions.noise_dim), config.dtype),
        random.uniform(start, (*shape, start_numbers), "float32"),
        np.stack([permutation(epoch) for epoch in range(config.epochs)]),
        entropy,
    )


def collect(
    actor: _Actor,
    envs: Envs,
    carry: Carry,
    noise: Noise,
    config: PPOConfig,
    watch: Callable[[Any], Any] | None = None,
) -> tuple[Rollout, Carry, dict[str, float]]:
    """`config.n_steps` steps of every environment; what goes on to the next update; means to log.

    The network sees observations normalised by the statistics as they were; the raw ones of this rollout join those of
    the returned carry, and are learned from by those if `config.join_first`. `watch` is what a hook must know
    of states.
    """
    steps, statistics = [], carry.statistics
    returns, lengths = carry.episode_return, carry.episode_length
    finished = np.zeros(3)  # episodes, and the sums of their returns and lengths
    means: dict[str, list[float]] = {}  # by step, of what the world wants logged
    see, bootstraps = lambda raw: as_seen(raw, carry.statistics, config), config.truncation == "bootstrap"

    for t in range(config.n_steps):
        raw, mask = envs.observe().astype(config.dtype), envs.mask()
        observation = see(raw)
        watched = None if watch is None else watch(envs.state)
        action, executed, log_prob, before = actor.act(observation, mask, noise.action[t])
        outcome = envs.step(executed)
        terminated, truncated = outcome.terminated, outcome.truncated
        reward, ended = outcome.reward.astype(config.dtype), terminated | truncated
        for name, numbers in told(outcome).items():
            means.setdefault(name, []).append(float(numbers.mean()))
        after = np.zeros_like(before)
        if bootstraps and truncated.any():
            after = actor.value(see(envs.observe().astype(config.dtype)))
        watched = None if watch is None else Watched(watched, watch(envs.state))
        seen = Seen(raw if config.join_first else observation, mask)
        steps.append(Rollout(seen, action, log_prob, before, after, reward, terminated, truncated, watched))
        if config.normalize_observations:
            statistics = merge(statistics, raw)
        returns, lengths = returns + reward, lengths + np.int32(1)
        if ended.any():
            finished += ended.sum(), returns[ended].sum(), lengths[ended].sum()
            returns, lengths = np.where(ended, 0, returns).astype(config.dtype), np.where(ended, 0, lengths)
            envs.restart(ended, noise.start[t])

    seen, *others, watched, _ = zip(*steps, strict=True)
    rollout = Rollout(Seen(*map(_stacked, zip(*seen, strict=True))), *map(np.stack, others))
    # The state after a step is the next step's state, unless the episode was cut off there.
    following = np.concatenate([rollout.value[1:], actor.value(see(envs.observe().astype(config.dtype)))[None]])
    next_value = np.where(rollout.truncated, rollout.next_value, following) if bootstraps else following
    rollout = rollout._replace(next_value=next_value)
    if config.join_first:
        see = lambda raw: as_seen(raw, statistics, config)
        rollout = rollout._replace(state=rollout.state._replace(observation=see(rollout.state.observation)))
    if config.segments:
        rollout = rollout._replace(last=see(envs.observe().astype(config.dtype)))
    if watch is not None:
        rollout = rollout._replace(watched=Watched(*map(np.stack, zip(*watched, strict=True))))
    info = _info(rollout, finished, noise.action.shape[-1]) | {name: float(np.mean(of)) for name, of in means.items()}
    return rollout, Carry(envs.state, statistics, returns, lengths.astype(np.int32), carry.aux), info


def as_seen(raw: np.ndarray, statistics: Statistics, config: PPOConfig) -> np.ndarray:
    """Observations as the network sees them."""
    return normalize(statistics, raw) if config.normalize_observations else raw


def _stacked(columns: tuple[Any, ...]) -> np.ndarray | None:
    return None if columns[0] is None else np.stack(columns)


def _info(rollout: Rollout, finished: np.ndarray, n_actions: int) -> dict[str, float]:
    """Means over the steps, and over the episodes that ended; of each discrete action, the share of the steps in which
    it was legal that took it. 0 where there were none."""
    episodes, total_return, total_length = map(float, finished)
    info = {
        "mean_reward": float(rollout.reward.mean()),
        "mean_episode_return": total_return / max(episodes, 1.0),
        "mean_episode_length": total_length / max(episodes, 1.0),
        "episodes": episodes,
    }
    mask, action = rollout.state.mask, rollout.action
    if np.issubdtype(action.dtype, np.integer):
        chosen = action[..., None] == np.arange(n_actions)
        legal = np.ones_like(chosen) if mask is None else mask
        shares = (chosen & legal).sum((0, 1)) / np.maximum(legal.sum((0, 1)), 1)
        info |= {f"action_{i}": float(share) for i, share in enumerate(shares)}
        info |= {} if mask is None else {"illegal": float((chosen & ~legal).sum())}
    return info
