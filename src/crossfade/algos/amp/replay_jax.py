"""The policy's transitions that a discriminator learns from, in JAX. Twin: replay_numpy.py.

All are pure functions: what they are given stays as it is.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, PRNGKeyArray

from ...random import streams_jax as streams
from .batch import Noise, Replay, Transitions
from .config import AMPConfig


def start(memory: int, inputs: int, dtype: str) -> Replay:
    """A memory that holds nothing."""
    zero = jnp.zeros((), jnp.int32)
    return Replay(jnp.zeros((memory, inputs), dtype), zero, zero)


def store(replay: Replay, rows: Float[Array, "n x"]) -> Replay:
    """The memory with these rows, which replace the oldest ones."""
    memory, n = len(replay.transition), len(rows)
    place = (replay.index + jnp.arange(n, dtype=jnp.int32)) % memory
    transition = replay.transition.at[place].set(rows, unique_indices=True)
    return Replay(transition, (replay.index + n) % memory, jnp.minimum(replay.size + n, memory))


def draw(key: PRNGKeyArray, config: AMPConfig) -> Noise:
    """The randomness of the gradient steps between two rollouts, from their key."""
    shape = config.updates, config.batch
    return Noise(*(streams.uniform(own, shape, "float32") for own in jax.random.split(key, 2)))


def chosen(transition: Float[Array, "rows x"], size: Array, uniform: Float32[Array, "*n"]) -> Float[Array, "*n x"]:
    """Rows among the first `size`, with replacement: that of number floor(u size)."""
    row = jnp.floor(uniform * size.astype(jnp.float32)).astype(jnp.int32)
    return transition[jnp.minimum(row, size - 1)]


def batches(reference: Float[Array, "rows x"], replay: Replay, noise: Noise) -> Transitions:
    """The transitions of every gradient step, (updates, batch, x)."""
    known = chosen(reference, jnp.array(len(reference), jnp.int32), noise.reference)
    return Transitions(known, chosen(replay.transition, replay.size, noise.policy))
