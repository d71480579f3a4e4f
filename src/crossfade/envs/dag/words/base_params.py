"""What defines the building of an object word by word: framework-free."""

from abc import abstractmethod
from typing import Literal

import numpy as np
from jaxtyping import Int32

from ..encoding_numpy import unravel
from ..params import Params, countable

Order = Literal["append", "prepend_append", "free"]


class WordsParams(Params):
    """Objects of `n_words` words out of `n_symbols`, complete when all are written.

    State: x in {-1 .. n_symbols-1}^n_words, -1 where nothing is written yet; the source is empty.
    Actions by `order`, A = n_symbols:
        append            a writes word a at the right end: a tree, every object has one parent
        prepend_append    as append, and A + a writes word a at the left end, valid from the second word on (the first
                          word has no ends to tell apart). Strings are kept at the left of x.
        free              p A + a writes word a at position p, valid where nothing stands
        Stop is last, valid only when all words are written.
    Backward actions: append, prepend_append: 0 takes the right end away, 1 the left one (prepend_append only, of two or
        more words); free: p clears position p.
    Ends: with stop, after n_words + 1 transitions.
    Observation: one-hot, n_symbols entries per position, none set where nothing is written.
    Index: strings by length, then alphabetically; free by the digits x + 1, the first the most significant.
    """

    order: Order

    @property
    @abstractmethod
    def n_words(self) -> int:
        """Positions."""

    @property
    @abstractmethod
    def n_symbols(self) -> int:
        """Different words."""

    @property
    def n_actions(self) -> int:
        return self.n_symbols * {"append": 1, "prepend_append": 2, "free": self.n_words}[self.order] + 1

    @property
    def n_parents(self) -> int:
        return {"append": 1, "prepend_append": 2, "free": self.n_words}[self.order]

    @property
    def max_steps(self) -> int:
        return self.n_words + 1

    @property
    def observation_dim(self) -> int:
        return self.n_words * self.n_symbols

    @property
    def n_states(self) -> int | None:
        if self.order == "free":
            return countable([(self.n_symbols + 1) ** self.n_words])
        return countable(self.n_symbols**size for size in range(self.n_words + 1))

    @property
    def terminating(self) -> bool:
        return False

    @property
    def source(self) -> Int32[np.ndarray, " d"]:
        return np.full(self.n_words, -1, np.int32)

    def objects(self, most: int) -> Int32[np.ndarray, "objects d"] | None:
        if self.n_symbols**self.n_words > most:
            return None
        return unravel(np.arange(self.n_symbols**self.n_words), self.n_symbols, self.n_words)
