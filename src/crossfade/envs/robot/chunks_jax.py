"""Large batches in chunks, one after the other: what a chunk computes with stays in the caches of a CPU."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

CHUNK = 32
"""Robots at a time."""


def in_chunks(function: Callable[..., Any], *arguments: Any, size: int = CHUNK) -> Any:
    """function(*arguments), of arrays with a first axis of robots, and a result with one likewise.

    The function is called for `size` robots at a time, and must treat each by itself. The last chunk is filled up with
    robots that are there already.
    """
    robots = jax.tree.leaves(arguments)[0].shape[0]
    chunks = -(-robots // size)
    if chunks <= 1:
        return function(*arguments)
    spare = chunks * size - robots
    split = lambda part: jnp.concatenate([part, part[:spare]]).reshape(chunks, size, *part.shape[1:])
    whole = lambda part: part.reshape(chunks * size, *part.shape[2:])[:robots]
    return jax.tree.map(whole, jax.lax.map(lambda chunk: function(*chunk), jax.tree.map(split, arguments)))
