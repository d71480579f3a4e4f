"""Set addition in NumPy; `SetAdditionParams` is its specification, set_addition_jax.py its twin."""

import numpy as np
from jaxtyping import Bool, Float, Int

from ..base_numpy import Array, Env
from .params import SetAdditionParams


class SetAddition(Env[SetAdditionParams]):
    """See `SetAdditionParams`."""

    def grow(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return np.where(np.arange(self.params.n_items) == action[..., None], np.int32(1), x)

    def shrink(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return np.where(np.arange(self.params.n_items) == parent[..., None], np.int32(0), x)

    def can_grow(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch moves"]:
        return (x == 0) & (x.sum(-1, keepdims=True) < self.params.max_size)

    def can_shrink(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch parents"]:
        return x == 1

    def can_stop(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        return (x.sum(-1) == self.params.max_size) | self.params.terminating

    def features(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch observation"]:
        return x

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        return x @ self.params.value + ((x @ self.params.affinity) * x).sum(-1) / 2

    def encode(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        rank = x.cumsum(-1)
        digits = self.params.choose[np.arange(self.params.n_items), rank]
        return self.params.first_of_size[rank[..., -1]] + (x * digits).sum(-1)

    def decode(self, index: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        size = (index[..., None] >= self.params.first_of_size).sum(-1) - 1
        rest = index - self.params.first_of_size[size]
        x = np.zeros((*np.shape(index), self.params.n_items), np.int32)
        for item in reversed(range(self.params.n_items)):
            digit = self.params.choose[item, size]
            taken = (rest >= digit) & (size > 0)
            x[..., item] = taken
            rest, size = rest - taken * digit, size - taken
        return x
