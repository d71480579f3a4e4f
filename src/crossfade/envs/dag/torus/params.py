"""What defines a continuous torus: framework-free."""

import math
from dataclasses import dataclass
from typing import Annotated

from ....ranges import Positive, Range
from ..continuous_params import ContinuousParams


@dataclass(frozen=True)
class TorusParams(ContinuousParams):
    """Angles in [0, 2 pi)^n_dim, reached in a fixed number of turns.

    State: x in [0, 2 pi)^n_dim and t, the number of turns so far; the source has x = 0 and t = 0.
    Forward: x' = x + 2 pi r, wrapped, while t < n_turns; then stop, which is certain. (A policy that has a density g on
        the circle has f(r) = 2 pi g(2 pi r); the width 2 pi takes the factor back.)
    Backward: x' = x - 2 pi r, wrapped, while t > 1; from t = 1 the return to the source is certain.
    Reward: R = floor + (sum of sin(alpha x_d) over even d + sum of cos(beta x_d) over odd d + n_dim)^3, d from 0, also
        for unfinished states. Its integral is known.
    Ends: with stop, after n_turns + 1 transitions.
    Observation: cos(k x_d) and sin(k x_d) for k = 1 .. harmonics, all cosines first, then t / n_turns.
    """

    n_dim: Annotated[int, Range(1, 1000)] = 2
    """Number of angles."""
    n_turns: Annotated[int, Range(1, 10_000)] = 5
    """Moves T before stop."""
    alpha: Annotated[int, Range(1, 1000)] = 1
    """Frequency in the even dimensions."""
    beta: Annotated[int, Range(1, 1000)] = 1
    """Frequency in the odd dimensions."""
    floor: Positive = 1e-3
    """Least reward."""
    harmonics: Annotated[int, Range(1, 1000)] = 5
    """Frequencies that a network sees of each angle."""

    @property
    def source(self) -> float:
        return 0.0

    @property
    def horizon(self) -> int:
        return self.n_turns

    @property
    def max_steps(self) -> int:
        return self.n_turns + 1

    @property
    def observation_dim(self) -> int:
        return 2 * self.harmonics * self.n_dim + 1

    @property
    def log_z(self) -> float:
        n = self.n_dim  # the waves have mean 0, mean square 1/2 and mean cube 0, and are independent
        return n * math.log(2 * math.pi) + math.log(self.floor + n**3 + 1.5 * n**2)
