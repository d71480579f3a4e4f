"""Bit sequences in JAX; `BitSequenceParams` is the specification, bit_sequence_numpy.py the twin."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .params import BitSequenceParams
from .words_jax import Words


class BitSequence(Words[BitSequenceParams]):
    """See `BitSequenceParams`."""

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        distance = jnp.asarray(self.params.distance)[jnp.arange(self.params.n_words), jnp.maximum(x, 0)]
        wrong = distance * (x >= 0)[:, None]
        return -self.params.slope * wrong.sum(0).min()
