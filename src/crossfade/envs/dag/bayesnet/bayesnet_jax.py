"""Bayesian-network structures in JAX; `BayesNetParams` is the specification, bayesnet_numpy.py the twin."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..base_jax import Env
from .params import BayesNetParams


class BayesNet(Env[BayesNetParams]):
    """See `BayesNetParams`."""

    def grow(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, " d"]:
        adjacency, closure = self._parts(x)
        edge = self._edge(action)
        head = closure @ edge.max(0)  # column j: all that j leads to
        tail = edge.max(1) @ closure  # row i: all that leads to i
        return jnp.concatenate([adjacency | edge, closure | jnp.outer(head, tail)]).reshape(-1)

    def shrink(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, " d"]:
        adjacency = self._parts(x)[0] & ~self._edge(parent)
        closure = adjacency.T + jnp.eye(self.params.n_nodes, dtype=jnp.int32)
        for _ in range((self.params.n_nodes - 1).bit_length()):  # each round doubles the length of the ways that count
            closure = (closure @ closure > 0).astype(jnp.int32)
        return jnp.concatenate([adjacency, closure]).reshape(-1)

    def can_grow(self, x: Int[Array, " d"]) -> Bool[Array, " moves"]:
        adjacency, closure = jnp.split(x, 2)
        return (adjacency | closure) == 0

    def can_shrink(self, x: Int[Array, " d"]) -> Bool[Array, " parents"]:
        return x[: self.params.n_parents] == 1

    def features(self, x: Int[Array, " d"]) -> Int[Array, " observation"]:
        return x[: self.params.n_parents]

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        node = np.arange(self.params.n_nodes, dtype=np.int32)
        parent_set = (1 << node) @ self._parts(x)[0]
        return jnp.asarray(self.params.scores)[node, parent_set].sum()

    def encode(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        pairs = np.flatnonzero(~np.eye(self.params.n_nodes, dtype=bool))
        code = x[pairs] @ (1 << np.arange(len(pairs), dtype=np.int32))
        return jnp.asarray(self.params.index_of_code)[code]

    def decode(self, index: Int[Array, ""]) -> Int[Array, " d"]:
        return jnp.asarray(self.params.graphs)[index]

    def _parts(self, x: Int[Array, " d"]) -> tuple[Int[Array, "n n"], Int[Array, "n n"]]:
        """Adjacency and transposed closure."""
        adjacency, closure = x.reshape(2, self.params.n_nodes, self.params.n_nodes)
        return adjacency, closure

    def _edge(self, action: Int[Array, ""]) -> Int[Array, "n n"]:
        """A matrix with a single 1; none for stop."""
        flags = jnp.arange(self.params.n_parents) == action
        return flags.astype(jnp.int32).reshape(self.params.n_nodes, self.params.n_nodes)
