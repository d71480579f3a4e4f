"""Ising spins in JAX; `IsingParams` is the specification, ising_numpy.py the twin."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .params import IsingParams
from .words_jax import Words


class Ising(Words[IsingParams]):
    """See `IsingParams`."""

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        spin = jnp.where(x >= 0, 2 * x - 1, 0)
        return (spin @ jnp.asarray(self.params.bonds)) @ spin + self.params.field * spin.sum()
