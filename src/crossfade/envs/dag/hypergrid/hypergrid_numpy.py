"""The hypergrid in NumPy; `HypergridParams` is its specification, hypergrid_jax.py its twin."""

import numpy as np
from jaxtyping import Bool, Float, Int

from .. import encoding_numpy as encoding
from ..base_numpy import Array, Env
from .params import HypergridParams


class Hypergrid(Env[HypergridParams]):
    """See `HypergridParams`."""

    def grow(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return x + (np.arange(self.params.n_dim) == action[..., None])

    def shrink(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return x - (np.arange(self.params.n_dim) == parent[..., None])

    def can_grow(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch moves"]:
        return x < self.params.length - 1

    def can_shrink(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch parents"]:
        return x > 0

    def features(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch observation"]:
        return encoding.one_hot(x, self.params.length)

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        if self.params.reward == "cosine":
            r0, r1, _ = self.params.constants
            return np.log(r0 + r1 * self.params.wave[x].prod(-1))
        region = self.params.region[x].min(-1)
        if self.params.reward == "sparse":
            region = region * (x == self.params.length - 2).any(-1)
        return self.params.log_levels[region]

    def encode(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        return encoding.ravel(x, self.params.length)

    def decode(self, index: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return encoding.unravel(index, self.params.length, self.params.n_dim)
