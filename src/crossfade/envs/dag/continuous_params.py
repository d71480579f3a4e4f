"""What the params of every continuous environment state: framework-free."""

from abc import ABC, abstractmethod
from typing import TypeVar

from ...ranges import check

EDGE = 1e-6
"""Ratios are kept this far from 0 and 1, where densities may be infinite."""


class ContinuousParams(ABC):
    """Base of the frozen dataclasses that define continuous environments."""

    n_dim: int

    def __post_init__(self) -> None:
        check(self)

    @property
    @abstractmethod
    def source(self) -> float:
        """Every coordinate of the source."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Where `State.t` stops counting: 1 unless the number of moves matters."""

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
    def log_z(self) -> float:
        """Log of the integral of the reward, in closed form."""


CP = TypeVar("CP", bound=ContinuousParams)
