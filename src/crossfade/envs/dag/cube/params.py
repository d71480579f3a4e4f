"""What defines a continuous cube: framework-free."""

import math
from dataclasses import dataclass
from typing import Annotated

from ....ranges import Fraction, Range
from ..continuous_params import ContinuousParams


@dataclass(frozen=True)
class CubeParams(ContinuousParams):
    """Points of the cube [0, 1]^n_dim, rewarded near its corners.

    State: x in [0, 1]^n_dim; the source has x = -1 everywhere.
    Forward: the first move goes anywhere, x' = r. Later ones add at least m = min_increment to every coordinate,
        x' = x + m + r (1 - x - m), possible while all coordinates are below 1 - m; stop is possible except at the
        source, so it is certain beyond 1 - m.
    Backward: x' = x - m - r (x - m), possible where all coordinates are above m; the return to the source is possible
        everywhere, so it is certain below m.
    Reward: with c = 2 x - 1, log R = -1/2 sum_d (|c_d| - mu)^2 / variance - n_dim / 2 log(2 pi variance); at the source
        0. Its integral over the cube is known.
    Ends: with stop, after at most floor(1 / m) + 2 transitions (the first move, later ones, stop).
    Observation: c (0 at the source), and 1 at the source, else 0.
    """

    n_dim: Annotated[int, Range(1, 1000)] = 2
    """Number of dimensions."""
    min_increment: Annotated[float, Range(least=1e-4, below=1)] = 0.1
    """Least increment m of a move, in every dimension."""
    mu: Fraction = 0.75
    """Where the peaks stand on both sides of 0, on the scale from -1 to 1."""
    variance: Annotated[float, Range(1e-6, 1e6)] = 0.05
    """Variance of each Gaussian."""

    @property
    def source(self) -> float:
        return -1.0

    @property
    def horizon(self) -> int:
        return 1

    @property
    def max_steps(self) -> int:
        return math.floor(1 / self.min_increment) + 2

    @property
    def observation_dim(self) -> int:
        return self.n_dim + 1

    @property
    def log_z(self) -> float:
        scale = math.sqrt(2 * self.variance)
        mass = (math.erf((1 - self.mu) / scale) + math.erf(self.mu / scale)) / 2
        return self.n_dim * math.log(mass)
