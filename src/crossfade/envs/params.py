"""What the params of every discrete environment state: sizes and the source, the same for both twins."""

from abc import ABC, abstractmethod
from typing import TypeVar

import numpy as np
from jaxtyping import Int32


class Params(ABC):
    """Base of the frozen dataclasses that define environments.

    The fields are the environment's configuration, the class docstring is its full specification, and the properties
    here are facts that follow from the fields.
    """

    @property
    @abstractmethod
    def n_actions(self) -> int:
        """Number of forward actions; the last one is stop."""

    @property
    @abstractmethod
    def n_parents(self) -> int:
        """Number of backward actions. Undoing stop is not among them: it is the only way back from a done state."""

    @property
    @abstractmethod
    def max_steps(self) -> int:
        """The largest number of transitions of a trajectory, stop included."""

    @property
    @abstractmethod
    def observation_dim(self) -> int:
        """Width of what a network sees."""

    @property
    @abstractmethod
    def source(self) -> Int32[np.ndarray, " d"]:
        """The object every trajectory starts from."""

    @property
    def n_states(self) -> int | None:
        """Number of objects, indexed without gaps, all reachable; None when they cannot be enumerated."""
        return None

    @property
    def terminating(self) -> bool:
        """Whether every object may stop."""
        return True


P = TypeVar("P", bound=Params)


def countable(n: int) -> int | None:
    """`n` where 32-bit indices can number so many states, else None."""
    return n if n < 2**31 else None
