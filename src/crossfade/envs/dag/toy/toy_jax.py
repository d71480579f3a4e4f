"""The toy graph in JAX; `ToyParams` is its specification, toy_numpy.py its twin."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .. import encoding_jax as encoding
from ..base_jax import Env
from .params import NODES, ToyParams


class Toy(Env[ToyParams]):
    """See `ToyParams`."""

    def grow(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, " d"]:
        return (action[None] + 1).astype(x.dtype)

    def shrink(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, " d"]:
        return parent[None].astype(x.dtype)

    def can_grow(self, x: Int[Array, " d"]) -> Bool[Array, " moves"]:
        return jnp.asarray(self.params.edge)[x[0], 1:]

    def can_shrink(self, x: Int[Array, " d"]) -> Bool[Array, " parents"]:
        return jnp.asarray(self.params.edge.T)[x[0]]

    def can_stop(self, x: Int[Array, " d"]) -> Bool[Array, ""]:
        return jnp.asarray(self.params.stops)[x[0]]

    def undo(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, ""]:
        return x[0]

    def redo(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, ""]:
        return x[0] - 1

    def features(self, x: Int[Array, " d"]) -> Bool[Array, " observation"]:
        return encoding.one_hot(x, NODES)

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        return jnp.asarray(self.params.log_rewards)[x[0]]

    def encode(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        return x[0]

    def decode(self, index: Int[Array, ""]) -> Int[Array, " d"]:
        return index[None].astype(jnp.int32)
