"""Ising spins in NumPy; `IsingParams` is the specification, ising_jax.py the twin."""

import numpy as np
from jaxtyping import Float, Int

from ..base_numpy import Array
from .params import IsingParams
from .words_numpy import Words


class Ising(Words[IsingParams]):
    """See `IsingParams`."""

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        spin = np.where(x >= 0, 2 * x - 1, 0)
        return ((spin @ self.params.bonds) * spin).sum(-1) + self.params.field * spin.sum(-1)
