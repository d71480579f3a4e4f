"""Phylogenetic trees in JAX; `PhyloParams` is the specification, phylo_numpy.py the twin."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from .. import encoding_jax as encoding
from ..base_jax import Env
from .params import PhyloParams


class Phylo(Env[PhyloParams]):
    """See `PhyloParams`."""

    def grow(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, " d"]:
        i, j = jnp.asarray(self.params.pairs)[jnp.minimum(action, self.n_actions - 2)]
        rank = (self._taker(x) == i).sum(dtype=jnp.int32)
        return jnp.where(jnp.arange(self.params.n_species) == j, i * self.params.n_species + rank, x)

    def shrink(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, " d"]:
        return jnp.where(jnp.arange(self.params.n_species) == parent, -1, x)

    def can_grow(self, x: Int[Array, " d"]) -> Bool[Array, " moves"]:
        i, j = self.params.pairs.T
        return (x[i] < 0) & (x[j] < 0)

    def can_shrink(self, x: Int[Array, " d"]) -> Bool[Array, " parents"]:
        taker = self._taker(x)
        taker_is_free = x[jnp.maximum(taker, 0)] < 0
        taken_later = (taker[None, :] == taker[:, None]) & (x[None, :] > x[:, None])
        return (x >= 0) & taker_is_free & ~taken_later.any(-1)

    def can_stop(self, x: Int[Array, " d"]) -> Bool[Array, ""]:
        return (x < 0).sum() == 1

    def undo(self, x: Int[Array, " d"], action: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.asarray(self.params.pairs)[action, 1]

    def redo(self, x: Int[Array, " d"], parent: Int[Array, ""]) -> Int[Array, ""]:
        return jnp.asarray(self.params.action_of_pair)[self._taker(x)[parent], parent]

    def features(self, x: Int[Array, " d"]) -> Float[Array, " observation"]:
        n = self.params.n_species
        taker = encoding.one_hot(self._taker(x), n)
        rank = jnp.asarray(self.params.fraction)[jnp.where(x >= 0, x % n + 1, 0)]
        return jnp.concatenate([taker, rank])

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        n = self.params.n_species
        share = (x >= 0).sum() / (n - 1)
        return (self.params.constant * share - self.mutations(x)) / self.params.temperature

    def mutations(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        """Fitch's count over all trees of the forest."""
        n = self.params.n_species
        taker = self._taker(x)
        # Trees of large names are complete before smaller ones take them in; each taker keeps its order.
        order = jnp.argsort(jnp.where(x < 0, n * n, -n * taker + x % n), stable=True)

        def join(letters, j):
            i = taker[j]
            ours, theirs = letters[jnp.maximum(i, 0)], letters[j]
            common = ours & theirs
            union = jnp.where(i < 0, ours, jnp.where(common == 0, ours | theirs, common))
            return letters.at[jnp.maximum(i, 0)].set(union), ((common == 0) & (i >= 0)).sum()

        return jax.lax.scan(join, jnp.asarray(self.params.sequences), order[: n - 1])[1].sum()

    def encode(self, x: Int[Array, " d"]) -> Int[Array, ""]:
        return jnp.searchsorted(jnp.asarray(self.params.codes), (x + 1) @ self.params.digits)

    def decode(self, index: Int[Array, ""]) -> Int[Array, " d"]:
        return jnp.asarray(self.params.forests)[index]

    def _taker(self, x: Int[Array, " d"]) -> Int[Array, " d"]:
        """The tree that took each tree in, or -1."""
        return jnp.where(x >= 0, x // self.params.n_species, -1)
