"""What makes compiled physics fast on a CPU.

Large batches go in chunks, one after the other: what a chunk computes with stays in the caches. What several later
quantities need is kept: XLA joins operations into loops, and computes in each what it needs, in recursions over and
over. Sums over the few numbers of an axis are written out (spatial_jax.py): XLA gives its own, once they are large
enough, to a library that takes ten times as long for them.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import PyTree

Tree = TypeVar("Tree")

CHUNK = 128
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


def kept(tree: Tree) -> Tree:
    """The arrays, each computed once: what comes from a function that is not inlined, XLA does not compute again."""
    with set_xla_metadata(inlineable="false"):
        return _same(tree)


@jax.jit
def _same(tree: PyTree) -> PyTree:
    return jax.lax.optimization_barrier(tree)
