"""Fourier transforms and complex numbers, in JAX."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .table import rule, rules

NORMALISED = {0: lambda n: 1.0, 1: lambda n: n**-0.5, 2: lambda n: 1.0 / n}
"""torch's numbers for "backward", "ortho" and "forward" of the direction at hand."""

rules(complex=lax.complex, real=jnp.real, imag=jnp.imag, angle=jnp.angle, conj=jnp.conj, _conj=jnp.conj)
rules(_conj_physical=jnp.conj, conj_physical=jnp.conj, _neg_view=lambda x: -x)


@rule("_fft_r2c")
def fft_of_reals(x: Array, dim: Sequence[int], normalization: int, onesided: bool) -> Array:
    scale = NORMALISED[normalization](_size(x, dim))
    return scale * (jnp.fft.rfftn(x, axes=tuple(dim)) if onesided else jnp.fft.fftn(x, axes=tuple(dim)))


@rule("_fft_c2c")
def fft(x: Array, dim: Sequence[int], normalization: int, forward: bool) -> Array:
    size = _size(x, dim)
    scale = NORMALISED[normalization](size)
    return scale * (jnp.fft.fftn(x, axes=tuple(dim)) if forward else size * jnp.fft.ifftn(x, axes=tuple(dim)))


@rule("_fft_c2r")
def fft_to_reals(x: Array, dim: Sequence[int], normalization: int, last_dim_size: int) -> Array:
    shape = [x.shape[axis] for axis in dim[:-1]] + [last_dim_size]
    size = int(np.prod(shape))
    return NORMALISED[normalization](size) * size * jnp.fft.irfftn(x, shape, axes=tuple(dim))


@rule("view_as_real", "view_as_real_copy")
def view_as_real(x: Array) -> Array:
    return jnp.stack([x.real, x.imag], axis=-1)


@rule("view_as_complex", "view_as_complex_copy")
def view_as_complex(x: Array) -> Array:
    return lax.complex(x[..., 0], x[..., 1])


def _size(x: Array, dim: Sequence[int]) -> int:
    return int(np.prod([x.shape[axis] for axis in dim]))
