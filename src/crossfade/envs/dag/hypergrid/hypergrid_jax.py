"""The hypergrid in JAX; `HypergridParams` is its specification, hypergrid_numpy.py its twin."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .. import encoding_jax as encoding
from ..base_jax import Env
from .params import HypergridParams


class Hypergrid(Env[HypergridParams]):
    """See `HypergridParams`."""

    def grow(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, " d"]:
        return x + (jnp.arange(self.params.n_dim) == action)

    def shrink(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, " d"]:
        return x - (jnp.arange(self.params.n_dim) == parent)

    def can_grow(self, x: Int[Array, " d"]) -> Bool[Array, " moves"]:
        return x < self.params.length - 1

    def can_shrink(self, x: Int[Array, " d"]) -> Bool[Array, " parents"]:
        return x > 0

    def features(self, x: Int[Array, " d"]) -> Bool[Array, " observation"]:
        return encoding.one_hot(x, self.params.length)

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        if self.params.reward == "cosine":
            r0, r1, _ = self.params.constants
            return jnp.log(r0 + r1 * jnp.asarray(self.params.wave)[x].prod())
        region = jnp.asarray(self.params.region)[x].min()
        if self.params.reward == "sparse":
            region = region * (x == self.params.length - 2).any()
        return jnp.asarray(self.params.log_levels)[region]

    def encode(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        return encoding.ravel(x, self.params.length)

    def decode(self, index: Int[Array, ""]) -> Int[Array, " d"]:
        return encoding.unravel(index, self.params.length, self.params.n_dim)
