"""Equality without tolerance."""

import numpy as np


def same(a, b) -> bool:
    """Bit for bit, dtype and shape included."""
    a, b = np.asarray(a), np.asarray(b)
    return (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
