"""Bit sequences in NumPy; `BitSequenceParams` is the specification, bit_sequence_jax.py the twin."""

import numpy as np
from jaxtyping import Float, Int

from ..base_numpy import Array
from .params import BitSequenceParams
from .words_numpy import Words


class BitSequence(Words[BitSequenceParams]):
    """See `BitSequenceParams`."""

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        wrong = self.params.distance[np.arange(self.params.n_words), np.maximum(x, 0)] * (x >= 0)[..., None]
        return -self.params.slope * wrong.sum(-2).min(-1)
