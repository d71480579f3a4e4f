"""New tensors, in JAX. The player casts them to the dtype that torch gave."""

import jax.numpy as jnp
import numpy as np
from jax import Array

from .table import rule, rules
from .values import Number, Value

rules(
    empty=lambda size, **_: jnp.zeros(size),
    empty_like=lambda x, **_: jnp.zeros_like(x),
    empty_permuted=lambda size, layout, **_: jnp.zeros(size),
    empty_strided=lambda size, stride, **_: jnp.zeros(size),
    full=lambda size, value, **_: jnp.full(size, value),
    full_like=lambda x, value, **_: jnp.full(x.shape, value),
    new_empty=lambda x, size, **_: jnp.zeros(size),
    new_empty_strided=lambda x, size, stride, **_: jnp.zeros(size),
    new_full=lambda x, size, value, **_: jnp.full(size, value),
    new_ones=lambda x, size, **_: jnp.ones(size),
    new_zeros=lambda x, size, **_: jnp.zeros(size),
    ones=lambda size, **_: jnp.ones(size),
    ones_like=lambda x, **_: jnp.ones_like(x),
    scalar_tensor=lambda value, **_: jnp.asarray(value),
    zero=lambda x: jnp.zeros_like(x),
    zeros=lambda size, **_: jnp.zeros(size),
    zeros_like=lambda x, **_: jnp.zeros_like(x),
)


@rule("fill")
def fill(x: Array, value: Value) -> Array:
    return jnp.full(x.shape, value, x.dtype)


@rule("arange")
def arange(*bounds: Number, **_: object) -> np.ndarray:
    return np.arange(*bounds)


@rule("linspace")
def linspace(start: Value, end: Value, steps: int, **_: object) -> Array:
    return jnp.linspace(start, end, steps, dtype=float)


@rule("logspace")
def logspace(start: Value, end: Value, steps: int, base: Number = 10.0, **_: object) -> Array:
    return jnp.logspace(start, end, steps, base=base, dtype=float)


@rule("eye")
def eye(n: int, m: int | None = None, **_: object) -> Array:
    return jnp.eye(n, m)


@rule("tril_indices")
def tril_indices(rows: int, columns: int, offset: int = 0, **_: object) -> np.ndarray:
    return np.stack(np.tril_indices(rows, offset, columns))


@rule("triu_indices")
def triu_indices(rows: int, columns: int, offset: int = 0, **_: object) -> np.ndarray:
    return np.stack(np.triu_indices(rows, offset, columns))
