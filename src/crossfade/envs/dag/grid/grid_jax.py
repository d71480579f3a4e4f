"""The grid in JAX; `GridParams` is its specification, grid_numpy.py its twin."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .. import encoding_jax as encoding
from ..base_jax import Env
from .params import GridParams


class Grid(Env[GridParams]):
    """See `GridParams`."""

    def grow(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, " d"]:
        return x + jnp.asarray(self.params.increments)[jnp.minimum(action, self.n_actions - 2)]

    def shrink(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, " d"]:
        return x - jnp.asarray(self.params.increments)[parent]

    def can_grow(self, x: Int[Array, " d"]) -> Bool[Array, " moves"]:
        return (x[None, :] + self.params.increments).max(-1) < self.params.length

    def can_shrink(self, x: Int[Array, " d"]) -> Bool[Array, " parents"]:
        return (x[None, :] - self.params.increments).min(-1) >= 0

    def features(self, x: Int[Array, " d"]) -> Bool[Array, " observation"]:
        return encoding.one_hot(x, self.params.length)

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        return jnp.asarray(self.params.log_density)[x].sum()

    def encode(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        return encoding.ravel(x, self.params.length)

    def decode(self, index: Int[Array, ""]) -> Int[Array, " d"]:
        return encoding.unravel(index, self.params.length, self.params.n_dim)
