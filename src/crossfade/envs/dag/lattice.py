"""What grids and hypergrids have in common: framework-free."""

import numpy as np
from jaxtyping import Int32

from .params import Params, countable


class Lattice(Params):
    """Cells in each of some dimensions, reached from the origin by increments and told apart one-hot."""

    n_dim: int
    length: int

    @property
    def max_steps(self) -> int:
        return self.n_dim * (self.length - 1) + 1

    @property
    def observation_dim(self) -> int:
        return self.n_dim * self.length

    @property
    def n_states(self) -> int | None:
        return countable([self.length**self.n_dim])

    @property
    def source(self) -> Int32[np.ndarray, " d"]:
        return np.zeros(self.n_dim, np.int32)
