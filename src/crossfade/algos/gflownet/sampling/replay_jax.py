"""The best objects found so far, in JAX, of fixed shapes so that a compiled loop can carry it. Twin: replay_numpy.py.

Objects alone are kept; the trajectories to them are drawn anew each time. What is kept never depends on the last bits
of a reward, which the frameworks may compute differently: objects are ordered by log-rewards rounded to 1/4096, and
among equals the older comes first.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Int32

from ....envs.dag.base_jax import Env

EMPTY = -1e30
"""The log-reward of a place that holds no object."""


class Replay(NamedTuple):
    """Distinct objects, the best first; places from `size` on are empty and hold the source."""

    x: Int32[Array, "capacity d"]
    log_reward: Float[Array, " capacity"]
    size: Int32[Array, ""]


def start(env: Env, capacity: int, dtype: str = "float32") -> Replay:
    """An empty buffer."""
    return Replay(env.reset((capacity,)).x, jnp.full(capacity, EMPTY, dtype), jnp.zeros((), jnp.int32))


def add(replay: Replay, x: Int[Array, "batch d"], log_reward: Float[Array, " batch"]) -> Replay:
    """The best distinct objects of the buffer and the batch; of equal ones the older stays."""
    capacity, batch = len(replay.x), len(x)
    x = jnp.concatenate([replay.x, x.astype(replay.x.dtype)])
    log_reward = jnp.concatenate([replay.log_reward, log_reward.astype(replay.log_reward.dtype)])
    place = jnp.arange(capacity + batch)
    filled = (place < replay.size) | (place >= capacity)
    before = filled[None] & (place[None] < place[capacity:, None])
    known = ((x[capacity:, None] == x[None]).all(-1) & before).any(-1)
    # A known object ranks with the empty places and, in a stable sort, behind them: it is never kept.
    rank = _rounded(log_reward.at[capacity:].set(jnp.where(known, EMPTY, log_reward[capacity:])))
    best = jnp.argsort(-rank, stable=True)[:capacity]
    size = jnp.minimum(replay.size + (~known).sum(), capacity)
    return Replay(x[best], log_reward[best], size.astype(jnp.int32))


def pick(
    replay: Replay, uniform: Float[Array, " n"], gumbel: Float[Array, "n places"], weighted: bool
) -> Int32[Array, "n d"]:
    """Objects drawn with replacement from a buffer that is not empty: uniformly, or with `weighted` in proportion to R.

    Uniform draws read no Gumbel noise: its rows may be empty.
    """
    if weighted:
        filled = jnp.arange(len(replay.x)) < replay.size
        place = jnp.argmax(jnp.where(filled, _rounded(replay.log_reward), EMPTY)[None] + gumbel, axis=-1)
    else:
        place = jnp.minimum((uniform * replay.size.astype(uniform.dtype)).astype(jnp.int32), replay.size - 1)
    return replay.x[place]


def _rounded(log_reward: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    return jnp.round(log_reward * 4096) / 4096
