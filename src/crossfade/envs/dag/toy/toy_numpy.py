"""The toy graph in NumPy; `ToyParams` is its specification, toy_jax.py its twin."""

from jaxtyping import Bool, Float, Int

from .. import encoding_numpy as encoding
from ..base_numpy import Array, Env
from .params import NODES, ToyParams


class Toy(Env[ToyParams]):
    """See `ToyParams`."""

    def grow(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return (action[..., None] + 1).astype(x.dtype)

    def shrink(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return parent[..., None].astype(x.dtype)

    def can_grow(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch moves"]:
        return self.params.edge[x[..., 0], 1:]

    def can_shrink(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch parents"]:
        return self.params.edge.T[x[..., 0]]

    def can_stop(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        return self.params.stops[x[..., 0]]

    def undo(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        return x[..., 0]

    def redo(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        return x[..., 0] - 1

    def features(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch observation"]:
        return encoding.one_hot(x, NODES)

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        return self.params.log_rewards[x[..., 0]]

    def encode(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        return x[..., 0]

    def decode(self, index: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return index[..., None].astype("int32")
