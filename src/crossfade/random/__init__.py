"""`jax.random`, in torch: the same key gives the same numbers in both frameworks.

`crossfade.random.uniform` and its neighbours are the torch functions; `crossfade.random.numpy` is the NumPy twin, with
the same names and arguments. Both follow jax 0.10 with `jax_threefry_partitionable=True` (its default).

A key is an integer array whose last axis holds the two words of `jax.random.key_data`: uint32 in NumPy, int64 in torch
(uint32 tensors are accepted). Leading axes are a batch of keys: the result has the shape `batch + shape`, as `jax.vmap`
of the JAX function would give. Draws carry no gradient.

Default dtypes are those of JAX with x64 off (float32, int32, uint32), whatever JAX's own setting; ask for 64 bits by
`dtype=`. `choice` with replacement and without `p` has no such argument: with x64 on, JAX draws it from another stream.
Indices (`categorical`, `permutation` and `choice` of an integer) are int64, as indexing likes.

What equals jax's CPU backend, jitted or not, as measured on x86-64 with FMA (tests/random hold it):
  bits, split, fold_in, uniform, randint, permutation   the same bits
  normal, gumbel, exponential in float32                the same bits, for all 2**23 uniforms they can be made from
  gumbel in float64                                     the same bits, where Python and XLA use the same libm
  normal, exponential in float64                        within 1e-14 relative
  bernoulli, categorical, choice                        the same, as they follow from the above
"""

import importlib
from typing import TYPE_CHECKING, Any

from .._lazy import lazy

if TYPE_CHECKING:
    from . import random_numpy as numpy  # noqa: F401
    from .random_torch import (
        bernoulli as bernoulli,
        bits as bits,
        categorical as categorical,
        choice as choice,
        exponential as exponential,
        fold_in as fold_in,
        gumbel as gumbel,
        key as key,
        normal as normal,
        permutation as permutation,
        randint as randint,
        split as split,
        uniform as uniform,
    )

NAMES = (
    "bernoulli bits categorical choice exponential fold_in gumbel key normal permutation randint split uniform".split()
)

_function, __dir__, __all__ = lazy(__name__, dict.fromkeys(NAMES, "random_torch"))


def __getattr__(name: str) -> Any:
    if name == "numpy":
        return importlib.import_module(f"{__name__}.random_numpy")
    return _function(name)
