"""The grid in NumPy; `GridParams` is its specification, grid_jax.py its twin."""

import numpy as np
from jaxtyping import Bool, Float, Int

from .. import encoding_numpy as encoding
from ..base_numpy import Array, Env
from .params import GridParams


class Grid(Env[GridParams]):
    """See `GridParams`."""

    def grow(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return x + self.params.increments[np.minimum(action, self.n_actions - 2)]

    def shrink(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return x - self.params.increments[parent]

    def can_grow(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch moves"]:
        return (x[..., None, :] + self.params.increments).max(-1) < self.params.length

    def can_shrink(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch parents"]:
        return (x[..., None, :] - self.params.increments).min(-1) >= 0

    def features(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch observation"]:
        return encoding.one_hot(x, self.params.length)

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        return self.params.log_density[x].sum(-1)

    def encode(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        return encoding.ravel(x, self.params.length)

    def decode(self, index: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return encoding.unravel(index, self.params.length, self.params.n_dim)
