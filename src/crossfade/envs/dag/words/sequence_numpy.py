"""Fixed-length sequences in NumPy; `SequenceParams` is the specification, sequence_jax.py the twin."""

import numpy as np
from jaxtyping import Float, Int

from .. import encoding_numpy as encoding
from ..base_numpy import Array
from .params import SequenceParams
from .words_numpy import Words


class Sequence(Words[SequenceParams]):
    """See `SequenceParams`."""

    def log_r(self, x: Int[Array, "*batch d"]) -> Float[Array, "*batch"]:
        number = encoding.ravel(np.maximum(x, 0), self.params.n_symbols)
        return np.where(self.can_stop(x), self.params.log_table[number], 0.0)
