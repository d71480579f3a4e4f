"""Bayesian-network structures in NumPy; `BayesNetParams` is the specification, bayesnet_jax.py the twin."""

import numpy as np
from jaxtyping import Bool, Float, Int

from ..base_numpy import Array, Env
from . import dags
from .params import BayesNetParams


class BayesNet(Env[BayesNetParams]):
    """See `BayesNetParams`."""

    def grow(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        adjacency, closure = self._parts(x)
        edge = self._edge(action)
        head = (closure * edge.max(-2, keepdims=True)).max(-1, keepdims=True)  # column j: all that j leads to
        tail = (closure * edge.max(-1, keepdims=True)).max(-2, keepdims=True)  # row i: all that leads to i
        return _join(adjacency | edge, closure | head * tail)

    def shrink(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        adjacency = self._parts(x)[0] & ~self._edge(parent)
        return _join(adjacency, dags.closure(adjacency))

    def can_grow(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch moves"]:
        adjacency, closure = np.split(x, 2, axis=-1)
        return (adjacency | closure) == 0

    def can_shrink(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch parents"]:
        return x[..., : self.params.n_parents] == 1

    def features(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch observation"]:
        return x[..., : self.params.n_parents]

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        node = np.arange(self.params.n_nodes)
        parent_set = (1 << node) @ self._parts(x)[0]
        return self.params.scores[node, parent_set].sum(-1)

    def encode(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        return self.params.index_of_code[dags.code(self._parts(x)[0])]

    def decode(self, index: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return self.params.graphs[index]

    def _parts(self, x: Int[Array, "*batch d"]) -> tuple[Int[Array, "*batch n n"], Int[Array, "*batch n n"]]:
        """Adjacency and transposed closure."""
        parts = x.reshape(*x.shape[:-1], 2, self.params.n_nodes, self.params.n_nodes)
        return parts[..., 0, :, :], parts[..., 1, :, :]

    def _edge(self, action: Int[Array, "*batch"]) -> Int[Array, "*batch n n"]:
        """A matrix with a single 1; none for stop."""
        flags = (np.arange(self.params.n_parents) == action[..., None]).astype(np.int32)
        return flags.reshape(*flags.shape[:-1], self.params.n_nodes, self.params.n_nodes)


def _join(adjacency: Int[Array, "*batch n n"], closure: Int[Array, "*batch n n"]) -> Int[Array, "*batch d"]:
    return np.concatenate([adjacency, closure], axis=-2).reshape(*adjacency.shape[:-2], -1)
