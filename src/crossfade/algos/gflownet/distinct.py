"""The distinct objects among many, found by a sort whose shapes do not depend on the data."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ...envs.base_jax import Env, State


class Distinct(NamedTuple):
    """Visited objects told apart; what is beyond `count` repeats the first visit."""

    x: Int[Array, "visits d"]
    first: Int[Array, " visits"]
    """For each distinct object, one of its visits."""
    node: Int[Array, "*batch"]
    """For each visit, the number of its object."""
    count: Int[Array, ""]

    def objects(self, capacity: int) -> Int[Array, "capacity d"]:
        """The first `capacity` distinct objects: all of them if `count` is no larger."""
        return self.x[self.first[:capacity]]


def find(x: Int[Array, "*batch d"], env: Env) -> Distinct:
    """Tell apart the objects of a batch, by index where the environment numbers them, else by all their entries."""
    visits = x.reshape(-1, x.shape[-1])
    n = len(visits)
    keys = tuple(visits.T) if env.n_states is None else (env.index(State(visits, jnp.zeros(n, bool))),)
    *keys, order = jax.lax.sort((*keys, jnp.arange(n)), num_keys=len(keys))
    differs = jnp.stack([key[1:] != key[:-1] for key in keys]).any(0)
    begins = jnp.concatenate([jnp.ones(1, bool), differs])
    rank = jnp.cumsum(begins) - 1
    return Distinct(
        x=visits,
        first=jnp.zeros(n, order.dtype).at[jnp.where(begins, rank, n)].set(order, mode="drop"),
        node=jnp.zeros(n, rank.dtype).at[order].set(rank, unique_indices=True).reshape(x.shape[:-1]),
        count=rank[-1] + 1,
    )
