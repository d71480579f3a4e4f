"""What defines a hypergrid: framework-free."""

from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Annotated, Any, Literal

import numpy as np
from jaxtyping import Bool, Float64, Int32, Shaped

from ....ranges import NotNegative, Positive, Range
from ..lattice import Lattice
from ..target import Target, products

USUAL = {
    "corners": (0.1, 0.5, 2.0),
    "cosine": (0.1, 0.5, 0.0),
    "deceptive": (1e-5, 0.1, 2.0),
    "sparse": (1e-6, 1.0, 0.0),
}


@dataclass(frozen=True)
class HypergridParams(Lattice):
    """A grid of `length` cells in each of `n_dim` dimensions with one of four rewards.

    State: x in {0 .. length-1}^n_dim; the source is the origin.
    Actions: 0 .. n_dim-1 add 1 to that coordinate, valid below length - 1; stop last, always valid. Backward action d
        takes 1 from coordinate d, valid above 0.
    Reward: with a_d = |x_d / (length - 1) - 1/2| and products over the dimensions,
        corners     R = r0 + r1 prod 1[a > 0.25] + r2 prod 1[0.3 < a < 0.4]
        cosine      R = r0 + r1 prod (cos(50 a) + 1) phi(5 a), phi the standard normal density
        deceptive   R = r0 + r1 (1 - prod 1[a > 0.1]) + r2 prod 1[0.3 < a < 0.4]
        sparse      R = r0 + r1 where every coordinate is 1 or length - 2 and at least one is length - 2, else r0
        The comparisons are decided in integers (d = |2x - n|, n = length - 1: 2d > n, 5d > n, 3n < 5d < 4n), since
        floating point puts cells at a tie on different sides in different frameworks. Every state may stop.
    Ends: with stop, after at most n_dim (length - 1) + 1 transitions.
    Observation: one-hot, length entries per dimension. Index: row-major, so p.reshape((length,) * n_dim) is a picture.
    """

    n_dim: Annotated[int, Range(1, 1000)] = 2
    """Number of dimensions D."""
    length: Annotated[int, Range(2, 10**6)] = 8
    """Cells per dimension H."""
    reward: Literal["corners", "cosine", "deceptive", "sparse"] = "corners"
    """Which landscape."""
    r0: Positive | None = None
    """Reward everywhere, above 0. None takes the usual constant of the landscape (sparse: 1e-6, a floor of ours)."""
    r1: NotNegative | None = None
    """Reward of the wide region. None as above."""
    r2: NotNegative | None = None
    """Reward of the modes; unused by cosine and sparse. None as above."""

    @property
    def constants(self) -> tuple[float, float, float]:
        """(r0, r1, r2) with the usual values filled in."""
        given = zip((self.r0, self.r1, self.r2), USUAL[self.reward], strict=True)
        r0, r1, r2 = (default if value is None else value for value, default in given)
        return r0, r1, r2

    @property
    def n_actions(self) -> int:
        return self.n_dim + 1

    @property
    def n_parents(self) -> int:
        return self.n_dim

    def log_paths(self, x: Any, xp: ModuleType) -> Any:
        """log of the number of ways from the source to x, a multinomial coefficient; `xp` is NumPy or jax.numpy."""
        log_factorial = xp.asarray(np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, self.max_steps)))]))
        return log_factorial[x.sum(-1)] - log_factorial[x].sum(-1)

    @cached_property
    def region(self) -> Int32[np.ndarray, " length"]:
        """For each value of a coordinate 0 (outside), 1 (in the wide region) or 2 (in the inner one as well).

        The inner region lies within the wide one, so the least region of the coordinates is the region of the cell (for
        sparse, if a coordinate is length - 2).
        """
        n = self.length - 1
        x = np.arange(self.length)
        d = np.abs(2 * x - n)
        wide = {"corners": 2 * d > n, "deceptive": 5 * d > n, "sparse": (x == 1) | (x == n - 1)}[self.reward]
        inner = (3 * n < 5 * d) & (5 * d < 4 * n) & (self.reward != "sparse")
        return wide.astype(np.int32) + inner

    @cached_property
    def log_levels(self) -> Float64[np.ndarray, "3"]:
        """Log-reward of a cell in region 0, 1 and 2, of every landscape but cosine."""
        r0, r1, r2 = self.constants
        levels = {
            "corners": (r0, r0 + r1, r0 + r1 + r2),
            "deceptive": (r0 + r1, r0, r0 + r2),
            "sparse": (r0, r0 + r1, r0 + r1),
        }
        return np.log(levels[self.reward])

    @cached_property
    def wave(self) -> Float64[np.ndarray, " length"]:
        """The factor a coordinate brings to the cosine reward."""
        a = np.abs(np.arange(self.length) / (self.length - 1) - 0.5)
        return (np.cos(50 * a) + 1) * np.exp(-((5 * a) ** 2) / 2) / np.sqrt(2 * np.pi)

    @property
    def target(self) -> Target:
        """Every landscape is a sum of products over the dimensions, none of them negative."""
        r0, r1, r2 = self.constants
        parts = [(r0, self._product(np.ones(self.length)))]
        if self.reward == "cosine":
            parts.append((r1, self._product(self.wave)))
        else:
            wide, inner, far = self.region >= 1, self.region >= 2, np.arange(self.length) == self.length - 2
            apart = {
                "corners": self._product(wide),
                "deceptive": self._first(wide, ~wide, np.full(self.length, True)),
                "sparse": self._first(wide & ~far, far, wide),
            }
            parts += [(r1, apart[self.reward]), (r2, self._product(inner))]
        return products(np.concatenate([part * self._scale(r) for r, part in parts]))

    def _product(self, factor: Shaped[np.ndarray, " length"]) -> Shaped[np.ndarray, "1 n_dim length"]:
        """One product, with the same factor in every dimension."""
        return np.tile(factor, (1, self.n_dim, 1))

    def _first(self, before, there, after) -> Bool[np.ndarray, "n_dim n_dim length"]:
        """Where some coordinate is `there`, told apart by which is the first: those before and after it are given."""
        order = np.sign(np.arange(self.n_dim) - np.arange(self.n_dim)[:, None])
        return np.stack([there, after, before])[order]

    def _scale(self, r: float) -> Float64[np.ndarray, "n_dim 1"]:
        """What multiplies a product by r."""
        return np.array([[r]] + [[1.0]] * (self.n_dim - 1))
