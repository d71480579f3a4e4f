"""Phylogenetic trees in NumPy; `PhyloParams` is the specification, phylo_jax.py the twin."""

import numpy as np
from jaxtyping import Bool, Float, Int

from .. import encoding_numpy as encoding
from ..base_numpy import Array, Env
from .params import PhyloParams


class Phylo(Env[PhyloParams]):
    """See `PhyloParams`."""

    def grow(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        i, j = np.moveaxis(self.params.pairs[np.minimum(action, self.n_actions - 2)], -1, 0)
        rank = (self._taker(x) == i[..., None]).sum(-1)
        joined = (i * self.params.n_species + rank).astype(np.int32)
        return np.where(np.arange(self.params.n_species) == j[..., None], joined[..., None], x)

    def shrink(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return np.where(np.arange(self.params.n_species) == parent[..., None], np.int32(-1), x)

    def can_grow(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch moves"]:
        i, j = self.params.pairs.T
        return (x[..., i] < 0) & (x[..., j] < 0)

    def can_shrink(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch parents"]:
        taker = self._taker(x)
        taker_is_free = np.take_along_axis(x, np.maximum(taker, 0), axis=-1) < 0
        taken_later = (taker[..., None, :] == taker[..., None]) & (x[..., None, :] > x[..., None])
        return (x >= 0) & taker_is_free & ~taken_later.any(-1)

    def can_stop(self, x: Int[Array, "*batch d"]) -> Bool[Array, "*batch"]:
        return (x < 0).sum(-1) == 1

    def undo(self, x: Int[Array, "*batch d"], action: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        return self.params.pairs[action, 1]

    def redo(self, x: Int[Array, "*batch d"], parent: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
        taker = np.take_along_axis(self._taker(x), parent[..., None], axis=-1)[..., 0]
        return self.params.action_of_pair[taker, parent]

    def features(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch observation"]:
        n = self.params.n_species
        taker = encoding.one_hot(self._taker(x), n)
        rank = self.params.fraction[np.where(x >= 0, x % n + 1, 0)]
        return np.concatenate([taker, rank], axis=-1)

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        n = self.params.n_species
        share = (x >= 0).sum(-1) / (n - 1)
        return (self.params.constant * share - self.mutations(x)) / self.params.temperature

    def mutations(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        """Fitch's count over all trees of the forest."""
        n = self.params.n_species
        letters = np.broadcast_to(self.params.sequences, (*x.shape, self.params.sequences.shape[-1])).copy()
        # Trees of large names are complete before smaller ones take them in; each taker keeps its order.
        order = np.argsort(np.where(x < 0, n * n, -n * self._taker(x) + x % n), axis=-1, kind="stable")
        count = np.zeros(x.shape[:-1], np.int64)
        for j in np.moveaxis(order, -1, 0)[: n - 1]:
            j = j[..., None]
            i = np.take_along_axis(self._taker(x), j, axis=-1)
            joins = i >= 0
            ours = np.take_along_axis(letters, np.maximum(i, 0)[..., None], axis=-2)[..., 0, :]
            theirs = np.take_along_axis(letters, j[..., None], axis=-2)[..., 0, :]
            common = ours & theirs
            count = count + ((common == 0) & joins).sum(-1)
            union = np.where(joins, np.where(common == 0, ours | theirs, common), ours)
            np.put_along_axis(letters, np.maximum(i, 0)[..., None], union[..., None, :], axis=-2)
        return count

    def encode(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch"]:
        return np.searchsorted(self.params.codes, (x + 1) @ self.params.digits)

    def decode(self, index: Int[Array, "*batch"]) -> Int[Array, "*batch d"]:
        return self.params.forests[index]

    def _taker(self, x: Int[Array, "*batch d"]) -> Int[Array, "*batch d"]:
        """The tree that took each tree in, or -1."""
        return np.where(x >= 0, x // self.params.n_species, -1)
