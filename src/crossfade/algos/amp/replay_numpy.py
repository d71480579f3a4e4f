"""The policy's transitions that a discriminator learns from, in NumPy. Twin: replay_jax.py.

All are pure functions: what they are given stays as it is.
"""

import numpy as np
from jaxtyping import Float, Float32

from ...random import random_numpy as random
from .batch import Noise, Replay, Transitions
from .config import AMPConfig


def start(memory: int, inputs: int, dtype: str) -> Replay:
    """A memory that holds nothing."""
    zero = np.zeros((), np.int32)
    return Replay(np.zeros((memory, inputs), dtype), zero, zero)


def store(replay: Replay, rows: Float[np.ndarray, "n x"]) -> Replay:
    """The memory with these rows, which replace the oldest ones."""
    memory, n = len(replay.transition), len(rows)
    transition = replay.transition.copy()
    transition[(replay.index + np.arange(n)) % memory] = rows
    index, size = (replay.index + n) % memory, np.minimum(replay.size + n, memory)
    return Replay(transition, np.asarray(index, np.int32), np.asarray(size, np.int32))


def draw(key: np.ndarray, config: AMPConfig) -> Noise:
    """The randomness of the gradient steps between two rollouts, from their key."""
    shape = config.updates, config.batch
    return Noise(*(random.uniform(own, shape, "float32") for own in random.split(key, 2)))


def chosen(
    transition: Float[np.ndarray, "rows x"], size: np.ndarray, uniform: Float32[np.ndarray, "*n"]
) -> Float[np.ndarray, "*n x"]:
    """Rows among the first `size`, with replacement: that of number floor(u size)."""
    row = np.floor(uniform * size.astype(np.float32)).astype(np.int32)
    return transition[np.minimum(row, size - 1)]


def batches(reference: Float[np.ndarray, "rows x"], replay: Replay, noise: Noise) -> Transitions:
    """The transitions of every gradient step, (updates, batch, x)."""
    known = chosen(reference, np.array(len(reference), np.int32), noise.reference)
    return Transitions(known, chosen(replay.transition, replay.size, noise.policy))
