"""The best objects found so far, in NumPy. Twin: replay_jax.py.

Objects alone are kept; the trajectories to them are drawn anew each time. What is kept never depends on the last bits
of a reward, which the frameworks may compute differently: objects are ordered by log-rewards rounded to 1/4096, and
among equals the older comes first.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Int32

from ....envs.dag.base_numpy import Env

EMPTY = -1e30
"""The log-reward of a place that holds no object."""


class Replay(NamedTuple):
    """Distinct objects, the best first; places from `size` on are empty and hold the source."""

    x: Int32[np.ndarray, "capacity d"]
    log_reward: Float[np.ndarray, " capacity"]
    size: Int32[np.ndarray, ""]


def start(env: Env, capacity: int, dtype: str = "float32") -> Replay:
    """An empty buffer."""
    x = env.reset((capacity,)).x.astype(np.int32)
    return Replay(x, np.full(capacity, EMPTY, dtype), np.array(0, np.int32))


def add(replay: Replay, x: Int[np.ndarray, "batch d"], log_reward: Float[np.ndarray, " batch"]) -> Replay:
    """The best distinct objects of the buffer and the batch; of equal ones the older stays."""
    size, capacity = int(replay.size), len(replay.x)
    x = np.concatenate([replay.x[:size], x.astype(np.int32)])
    log_reward = np.concatenate([replay.log_reward[:size], log_reward.astype(replay.log_reward.dtype)])
    first = np.sort(np.unique(x, axis=0, return_index=True)[1])
    best = first[np.argsort(-_rounded(log_reward[first]), kind="stable")][:capacity]
    kept = Replay(replay.x.copy(), replay.log_reward.copy(), np.array(len(best), np.int32))
    kept.x[: len(best)], kept.log_reward[: len(best)] = x[best], log_reward[best]
    return kept


def pick(
    replay: Replay, uniform: Float[np.ndarray, " n"], gumbel: Float[np.ndarray, "n _"], weighted: bool
) -> Int32[np.ndarray, "n d"]:
    """Objects drawn with replacement from a buffer that is not empty: uniformly, or with `weighted` in proportion to R.

    Uniform draws read no Gumbel noise: its rows may be empty.
    """
    if not weighted:
        place = np.floor(uniform * replay.size.astype(uniform.dtype)).astype(np.int64)
        return replay.x[np.minimum(place, replay.size - 1)]
    filled = np.arange(len(replay.x)) < replay.size
    score = np.where(filled, _rounded(replay.log_reward) + gumbel, -np.inf)
    return replay.x[score.argmax(-1)]


def _rounded(log_reward: Float[np.ndarray, "*batch"]) -> Float[np.ndarray, "*batch"]:
    return np.round(log_reward * 4096) / 4096
