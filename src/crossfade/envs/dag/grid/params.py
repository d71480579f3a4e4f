"""What defines a grid: framework-free."""

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from jaxtyping import Float64, Int32

from ....errors import UsageError
from ....ranges import Count, Fraction, Range
from ..lattice import Lattice
from ..target import Target, products


@dataclass(frozen=True)
class GridParams(Lattice):
    """A grid of `length` cells in each of `n_dim` dimensions, rewarded near its corners.

    State: x in {0 .. length-1}^n_dim; the source is the origin.
    Actions: increment vectors v with entries 0 .. max_increment, between 1 and max_dim_per_action of them not 0, in the
        order of `itertools.product`; stop last. In two dimensions: (0, 1), (1, 0), stop, so dimension 1 comes first.
        v is valid where x + v stays on the grid; stop always is. Backward action v takes v away, valid where x >= v.
    Reward: cell s stands at c = -1 + 2 s / (length - 1) in each dimension, and with D = n_dim
        log R = -1/2 sum_d (|c_d| - mu)^2 / variance - D/2 log(2 pi variance):
        a Gaussian in every corner. Every state may stop.
    Ends: with stop, after at most n_dim (length - 1) + 1 transitions.
    Observation: one-hot, length entries per dimension. Index: row-major, so p.reshape((length,) * n_dim) is a picture.
    """

    n_dim: Annotated[int, Range(1, 1000)] = 2
    """Number of dimensions D."""
    length: Annotated[int, Range(2, 10**6)] = 8
    """Cells per dimension."""
    max_increment: Count = 1
    """Largest step along one dimension."""
    max_dim_per_action: Count = 1
    """How many dimensions one action may move."""
    mu: Fraction = 0.75
    """Where the peaks stand on both sides of 0, on the scale from -1 to 1."""
    variance: Annotated[float, Range(1e-6, 1e6)] = 0.05
    """Variance of each Gaussian (upstream calls it sigma)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_increment >= self.length or self.max_dim_per_action > self.n_dim:
            raise UsageError(
                f"max_increment must be below length and max_dim_per_action at most n_dim; got max_increment="
                f"{self.max_increment} with length={self.length}, max_dim_per_action={self.max_dim_per_action} with "
                f"n_dim={self.n_dim}."
            )

    @property
    def n_actions(self) -> int:
        return self._moves + 1

    @property
    def n_parents(self) -> int:
        return self._moves

    @property
    def footprint(self) -> int:
        return 4 * self.n_parents * self.n_dim

    @property
    def node_bytes(self) -> int:
        return 4 * self.n_parents * self.n_dim  # masks compare x with every increment

    @cached_property  # asked for at every step of an object
    def _moves(self) -> int:
        sizes = range(1, self.max_dim_per_action + 1)
        return sum(math.comb(self.n_dim, size) * self.max_increment**size for size in sizes)

    @cached_property
    def increments(self) -> Int32[np.ndarray, "moves n_dim"]:
        """The vector each action adds, stop excepted."""
        vectors = np.zeros((self.n_parents, self.n_dim), np.int32)
        moves = (
            (dims, by)
            for size in range(1, self.max_dim_per_action + 1)
            for dims in itertools.combinations(range(self.n_dim), size)
            for by in itertools.product(range(1, self.max_increment + 1), repeat=size)
        )
        for vector, (dims, by) in zip(vectors, moves, strict=True):
            vector[list(dims)] = by
        return vectors[np.lexsort(vectors.T[::-1])]

    @cached_property
    def log_density(self) -> Float64[np.ndarray, " length"]:
        """What a coordinate adds to the log-reward, for each of its values."""
        cell = -1 + 2 * np.arange(self.length) / (self.length - 1)
        return -((np.abs(cell) - self.mu) ** 2) / (2 * self.variance) - math.log(2 * math.pi * self.variance) / 2

    @property
    def target(self) -> Target:
        return products(np.tile(np.exp(self.log_density), (1, self.n_dim, 1)))
