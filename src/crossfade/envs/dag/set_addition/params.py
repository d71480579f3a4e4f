"""What defines a set-addition problem: framework-free."""

from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Annotated

import numpy as np
from jaxtyping import Float64, Int32

from .... import random
from ....errors import UsageError
from ....ranges import Count, NotNegative, Range, Seed
from ..params import Params, countable


@dataclass(frozen=True)
class SetAdditionParams(Params):
    """Sets of at most `max_size` out of `n_items` items; items have values and get on well or badly with each other.

    State: x in {0, 1}^n_items, 1 where the item is in; the source is the empty set.
    Actions: a adds item a, valid while it is out and the set is smaller than max_size; stop last, always valid, or only
        at max_size when `fixed_size`. Backward action i removes item i, valid where it is in.
    Reward: log R = value . x + x' affinity x / 2; value ~ N(0, value_scale^2) and affinity, symmetric with zero
        diagonal, ~ N(0, affinity_scale^2), drawn from `seed`. Sets that may not stop have the same formula.
    Ends: with stop, after at most max_size + 1 transitions.
    Observation: x. Index: by size, then by the combinatorial number system (largest item first).
    """

    n_items: Annotated[int, Range(1, 10_000)] = 10
    """Items to choose from."""
    max_size: Count = 5
    """Largest set."""
    fixed_size: bool = False
    """Whether only sets of max_size are objects of interest."""
    value_scale: NotNegative = 1.0
    """Standard deviation of the items' values."""
    affinity_scale: NotNegative = 0.5
    """Standard deviation of the pairs' affinities."""
    seed: Seed = 0
    """Seed of values and affinities."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_size > self.n_items:
            raise UsageError(f"max_size must be at most n_items={self.n_items}, got {self.max_size}.")

    @property
    def n_actions(self) -> int:
        return self.n_items + 1

    @property
    def n_parents(self) -> int:
        return self.n_items

    @property
    def max_steps(self) -> int:
        return self.max_size + 1

    @property
    def observation_dim(self) -> int:
        return self.n_items

    @property
    def n_states(self) -> int | None:
        return countable(comb(self.n_items, size) for size in range(self.max_size + 1))

    @property
    def terminating(self) -> bool:
        return not self.fixed_size

    @property
    def source(self) -> Int32[np.ndarray, " d"]:
        return np.zeros(self.n_items, np.int32)

    @property
    def footprint(self) -> int:
        return 8 * self.n_items**2

    @cached_property
    def value(self) -> Float64[np.ndarray, " n_items"]:
        """What each item is worth."""
        key = random.numpy.fold_in(random.numpy.key(self.seed), 0)
        return self.value_scale * random.numpy.normal(key, (self.n_items,), np.float64)

    @cached_property
    def affinity(self) -> Float64[np.ndarray, "n_items n_items"]:
        """What each pair of items adds."""
        key = random.numpy.fold_in(random.numpy.key(self.seed), 1)
        upper = np.triu(random.numpy.normal(key, (self.n_items, self.n_items), np.float64), k=1)
        return self.affinity_scale * (upper + upper.T)

    @cached_property
    def choose(self) -> Int32[np.ndarray, "n_items sizes"]:
        """Binomial coefficients C(item, size): the digits of the combinatorial number system."""
        table = [[comb(item, size) for size in range(self.max_size + 1)] for item in range(self.n_items)]
        return np.array(table, np.int32)

    @cached_property
    def first_of_size(self) -> Int32[np.ndarray, " sizes"]:
        """Number of sets smaller than each size: the index of the first set of that size."""
        counts = [comb(self.n_items, size) for size in range(self.max_size)]
        return np.cumsum([0, *counts]).astype(np.int32)
