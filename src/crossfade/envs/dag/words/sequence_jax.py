"""Fixed-length sequences in JAX; `SequenceParams` is the specification, sequence_numpy.py the twin."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .. import encoding_jax as encoding
from .params import SequenceParams
from .words_jax import Words


class Sequence(Words[SequenceParams]):
    """See `SequenceParams`."""

    def log_r(self, x: Int[Array, " d"]) -> Float[Array, ""]:
        number = encoding.ravel(jnp.maximum(x, 0), self.params.n_symbols)
        return jnp.where(self.can_stop(x), jnp.asarray(self.params.log_table)[number], 0.0)
