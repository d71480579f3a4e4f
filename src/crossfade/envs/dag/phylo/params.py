"""What defines a phylogenetic problem: framework-free."""

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
from jaxtyping import Float64, Int32

from ....errors import UsageError
from ....ranges import Finite, Positive, Probability, Range, Seed
from ..params import Params
from . import alignment

COUNT = {2: 2, 3: 7, 4: 37, 5: 266, 6: 2431}
"""Number of forests by number of species, as far as we number them."""


@dataclass(frozen=True)
class PhyloParams(Params):
    """Rooted binary trees over species, built by joining two trees of a forest at a time; few mutations are good.

    A tree is named by its smallest species. Joining trees i < j makes a tree named i, in which j is "taken in by i".
    State: x with one entry per species n: x_j = -1 while j names a tree, and i n_species + r once tree j was taken in
        by i, as the r-th that i took in (r from 0). Equal forests have equal x. The source has x = -1 everywhere.
    Actions: one for each pair i < j in the order (0, 1), (0, 2), .. (1, 2), ..: join them, valid where both name trees;
        stop last, valid when one tree is left. Backward action j gives tree j free again, valid where the tree that
        took it in still names a tree and took in nothing since.
    Reward: Fitch's count of mutations. A site of a joined tree has the intersection of the two sides' letters, or, if
        that is empty, their union at the price of one mutation. log R = (constant - mutations) / temperature; after m
        of the n - 1 joins, constant counts m / (n - 1) of its value, so that log R grows join by join.
    Data: `file` (FASTA alignment), or sequences simulated on a random tree from `seed`.
    Ends: with stop, after n_species transitions.
    Observation: for each species n + 1 numbers: one-hot who took it in (none if nobody), and (r + 1) / n.
    Index (up to 6 species): by x, the first entry the most significant.
    """

    n_species: Annotated[int, Range(2, 1000)] = 6
    """Leaves of the tree; must agree with the file, if there is one."""
    n_sites: Annotated[int, Range(1, 10**6)] = 40
    """Letters per simulated sequence."""
    mutation: Probability = 0.1
    """Probability that a site changes along a branch of the simulated tree."""
    constant: Finite = 0.0
    """Mutations at which a complete tree has log R = 0."""
    temperature: Positive = 4.0
    """Mutations that divide the reward by e."""
    file: str | None = None
    """The user's alignment, FASTA; None simulates one."""
    seed: Seed = 0
    """Seed of the simulated alignment."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.file is not None and len(self.sequences) != self.n_species:
            raise UsageError(f"n_species is {self.n_species}, but {self.file} holds {len(self.sequences)} sequences.")

    @property
    def n_actions(self) -> int:
        return self.n_species * (self.n_species - 1) // 2 + 1

    @property
    def n_parents(self) -> int:
        return self.n_species

    @property
    def max_steps(self) -> int:
        return self.n_species

    @property
    def observation_dim(self) -> int:
        return self.n_species * (self.n_species + 1)

    @property
    def n_states(self) -> int | None:
        return COUNT.get(self.n_species)

    @property
    def terminating(self) -> bool:
        return False

    @property
    def source(self) -> Int32[np.ndarray, " d"]:
        return np.full(self.n_species, -1, np.int32)

    @cached_property
    def pairs(self) -> Int32[np.ndarray, "moves 2"]:
        """The trees (i, j) that each action joins."""
        return np.array(list(itertools.combinations(range(self.n_species), 2)), np.int32)

    @property
    def fraction(self) -> Float64[np.ndarray, " counts"]:
        """k / n for k = 0 .. n: a table, since a compiler may divide by a constant inexactly."""
        return np.arange(self.n_species + 1) / self.n_species

    @cached_property
    def action_of_pair(self) -> Int32[np.ndarray, "species species"]:
        """The action that joins i < j; 0 elsewhere."""
        table = np.zeros((self.n_species, self.n_species), np.int32)
        table[self.pairs[:, 0], self.pairs[:, 1]] = np.arange(len(self.pairs))
        return table

    @cached_property
    def sequences(self) -> Int32[np.ndarray, "species sites"]:
        """The letters at each site, as bit sets."""
        if self.file is not None:
            return alignment.read(self.file)
        return alignment.simulate(self.n_species, self.n_sites, self.mutation, self.seed)

    @cached_property
    def forests(self) -> Int32[np.ndarray, "states d"]:
        """Every state, by index: grown join by join from the source."""
        level, found = self.source[None], []
        while len(level):
            found.append(level)
            grown = []
            for i, j in self.pairs:
                both = level[(level[:, i] < 0) & (level[:, j] < 0)]
                rank = ((both >= 0) & (both // self.n_species == i)).sum(-1)
                both[:, j] = i * self.n_species + rank
                grown.append(both)
            level = np.unique(np.concatenate(grown), axis=0)
        return np.unique(np.concatenate(found), axis=0)

    @cached_property
    def codes(self) -> Int32[np.ndarray, " states"]:
        """The number that `digits` makes of each state, ascending."""
        return (self.forests + 1) @ self.digits

    @property
    def digits(self) -> Int32[np.ndarray, " d"]:
        """Weights that make x + 1 a number; the first entry is always 0 and needs none."""
        places = np.arange(self.n_species - 2, -1, -1)
        return np.array([0, *(self.n_species**2 + 1) ** places], np.int32)
