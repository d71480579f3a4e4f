"""Set addition in JAX; `SetAdditionParams` is its specification, set_addition_numpy.py its twin."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..base_jax import Env
from .params import SetAdditionParams


class SetAddition(Env[SetAdditionParams]):
    """See `SetAdditionParams`."""

    def grow(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, " d"]:
        return jnp.where(jnp.arange(self.params.n_items) == action, 1, x)

    def shrink(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, " d"]:
        return jnp.where(jnp.arange(self.params.n_items) == parent, 0, x)

    def can_grow(self, x: Int[Array, " d"]) -> Bool[Array, " moves"]:
        return (x == 0) & (x.sum() < self.params.max_size)

    def can_shrink(self, x: Int[Array, " d"]) -> Bool[Array, " parents"]:
        return x == 1

    def can_stop(self, x: Int[Array, " d"]) -> Bool[Array, ""]:
        return (x.sum() == self.params.max_size) | self.params.terminating

    def features(self, x: Int[Array, " d"]) -> Int[Array, " observation"]:
        return x

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        value, affinity = jnp.asarray(self.params.value), jnp.asarray(self.params.affinity)
        return x @ value + (x @ affinity) @ x / 2

    def encode(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        rank = x.cumsum()
        digits = jnp.asarray(self.params.choose)[jnp.arange(self.params.n_items), rank]
        return jnp.asarray(self.params.first_of_size)[rank[-1]] + (x * digits).sum()

    def decode(self, index: Int[Array, ""]) -> Int[Array, " d"]:
        first_of_size, choose = jnp.asarray(self.params.first_of_size), jnp.asarray(self.params.choose)
        size = (index >= first_of_size).sum() - 1

        def item(carry, digits):
            rest, size = carry
            taken = (rest >= digits[size]) & (size > 0)
            return (rest - taken * digits[size], size - taken), taken.astype(jnp.int32)

        return jax.lax.scan(item, (index - first_of_size[size], size), choose, reverse=True)[1]
