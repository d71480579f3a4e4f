"""The distinct objects among many visits, told apart in a number of operations that grows with the visits alone."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int, UInt32

from ....envs.dag.base_jax import Env, State

SLOTS = 1 << 20  # of the table in which visits of the same object meet


class Distinct(NamedTuple):
    """Visited objects told apart; entries of `first` beyond `total` repeat the first visit."""

    x: Int[Array, "visits d"]
    first: Int[Array, " visits"]
    """For each distinct object, its first visit."""
    node: Int[Array, "*batch"]
    """For each visit, the number of its object."""
    total: Int[Array, ""]
    """How many distinct objects there are."""

    def objects(self, capacity: int) -> Int[Array, "capacity d"]:
        """The first `capacity` distinct objects: all of them if `total` is no larger."""
        return self.x[self.first[:capacity]]


def find(x: Int[Array, "*batch d"], env: Env) -> Distinct:
    """Tell apart the objects of a batch, in the order of their first visit.

    Every visit looks into a slot for the first visit that came there. Up to `SLOTS` states each has a slot of its own.
    Beyond that objects share slots by a hash: one that finds another there takes each of its visits for a new object,
    which wastes a node and changes no result.
    """
    visits = x.reshape(-1, x.shape[-1])
    n = len(visits)
    own = env.n_states is not None and env.n_states <= SLOTS
    slot = env.index(State(visits, jnp.zeros(n, bool))) if own else _hash(visits) % SLOTS
    visit = jnp.arange(n)
    leader = jnp.full(env.n_states if own else SLOTS, n).at[slot].min(visit)[slot]
    leader = jnp.where((visits[leader] == visits).all(-1), leader, visit)
    leads = leader == visit
    rank = jnp.cumsum(leads) - 1
    return Distinct(
        x=visits,
        first=jnp.zeros_like(visit).at[jnp.where(leads, rank, n)].set(visit, mode="drop"),
        node=rank[leader].reshape(x.shape[:-1]),
        total=rank[-1] + 1,
    )


def _hash(x: Int[Array, "visits d"]) -> UInt32[Array, " visits"]:
    """A word that mixes all entries of each object (the rounds of FNV-1a, an entry at a time)."""
    word = jnp.full(len(x), 0x811C9DC5, jnp.uint32)
    for entry in x.T.astype(jnp.uint32):
        word = (word ^ entry) * 0x01000193
    return word ^ word >> 15
