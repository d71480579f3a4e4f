"""What the params of every discrete environment state: sizes and the source, the same for both twins."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeVar

import numpy as np
from jaxtyping import Int32

from ...ranges import check
from .target import Target


class Params(ABC):
    """Base of the frozen dataclasses that define environments.

    The fields are the environment's configuration, the class docstring is its full specification, and the properties
    here are facts that follow from the fields. A class of your own also says where its two environments are, in class
    attributes: `numpy = "my_env:LineNumpy"` and `jax = "my_env:LineJax"`. docs/own_environment.md tells the story.
    """

    def __post_init__(self) -> None:
        check(self)

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

    def objects(self, most: int) -> Int32[np.ndarray, "objects d"] | None:
        """All objects that may stop, where they can be listed without a walk over the states and are at most `most`."""
        return None

    @property
    def footprint(self) -> int:
        """Bytes of the tables that the environment is made of, if they can be many."""
        return 0

    @property
    def node_bytes(self) -> int:
        """Bytes of what a loss needs of an object that was visited: its observation, its masks."""
        return 4 * self.observation_dim + self.n_actions + self.n_parents

    @property
    def target(self) -> Target | None:
        """Exact draws from R / Z, where the form of the reward gives them (see target.py)."""
        return None


P = TypeVar("P", bound=Params)


def countable(counts: Iterable[int]) -> int | None:
    """The sum of the counts where 32-bit indices can number so many states, else None; it stops counting there."""
    total = 0
    for count in counts:
        total += count
        if total >= 2**31:
            return None
    return total
