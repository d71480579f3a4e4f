"""Directed acyclic graphs as arrays: closures, and the list of all of them. NumPy only.

The transposed closure C has C[i, j] = 1 where a way leads from j to i, or i = j: exactly where an edge i -> j would
close a cycle.
"""

import numpy as np
from jaxtyping import Int, Int32

from ..base_numpy import Array

COUNT = {2: 3, 3: 25, 4: 543, 5: 29_281}
"""Number of graphs by number of nodes, as far as we number them."""


def closure(adjacency: Int[np.ndarray, "*batch d d"]) -> Int32[np.ndarray, "*batch d d"]:
    """The transposed closure, by squaring: each round doubles the length of the ways that count."""
    d = adjacency.shape[-1]
    reached = np.swapaxes(adjacency, -1, -2) + np.eye(d, dtype=np.int32)
    for _ in range((d - 1).bit_length()):
        reached = (reached @ reached > 0).astype(np.int32)
    return reached


def code(adjacency: Int[np.ndarray, "*batch d d"]) -> Int[Array, "*batch"]:
    """The graph as a binary number, one digit for each ordered pair of different nodes."""
    d = adjacency.shape[-1]
    bits = adjacency[..., ~np.eye(d, dtype=bool)]
    return bits @ (1 << np.arange(d * (d - 1)))


def every(d: int) -> Int32[np.ndarray, "graphs d d"]:
    """All acyclic graphs of d nodes in order of their codes, found edge by edge from the empty one."""
    level = np.zeros((1, d, d), np.int32)
    found = [level]
    while len(level):
        row, i, j = np.nonzero((level == 0) & (closure(level) == 0))
        level = level[row]
        level[np.arange(len(row)), i, j] = 1
        level = level[np.unique(code(level), return_index=True)[1]]
        found.append(level)
    graphs = np.concatenate(found)
    return graphs[np.argsort(code(graphs))]
