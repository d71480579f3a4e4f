"""Values as torch understands them: dtypes and their promotion, ranks, axes."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import torch
from jax import Array

Number = bool | int | float
Value = Array | Number | complex
"""What stands for a tensor: an array, or a number that torch would have wrapped."""
Axes = int | Sequence[int] | None

DTYPES: dict[torch.dtype, np.dtype] = {
    torch.bool: np.dtype(np.bool_),
    torch.uint8: np.dtype(np.uint8),
    torch.int8: np.dtype(np.int8),
    torch.int16: np.dtype(np.int16),
    torch.int32: np.dtype(np.int32),
    torch.int64: np.dtype(np.int64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.complex64: np.dtype(np.complex64),
    torch.complex128: np.dtype(np.complex128),
}
TORCH_DTYPES = {numpy: dtype for dtype, numpy in DTYPES.items()}


def jax_dtype(dtype: torch.dtype) -> np.dtype:
    """The dtype that JAX keeps for torch's: 64 bits become 32 unless x64 is on."""
    return np.dtype(jax.dtypes.canonicalize_dtype(DTYPES[dtype]))


def default_float() -> np.dtype:
    """What torch makes of a Python float."""
    return jax_dtype(torch.get_default_dtype())


def is_float(x: Value) -> bool:
    return isinstance(x, float) if not isinstance(x, Array) else bool(jnp.issubdtype(x.dtype, jnp.inexact))


def as_float(x: Array) -> Array:
    """Integers and truth values as torch's default floats; floats as they are."""
    return x if is_float(x) else x.astype(default_float())


def common_dtype(values: Sequence[Value]) -> np.dtype:
    """torch's type promotion: arrays count before single numbers, and those before Python's, unless of a lower kind."""
    arrays = [x.dtype for x in values if isinstance(x, Array) and x.ndim > 0]
    single = [x.dtype for x in values if isinstance(x, Array) and x.ndim == 0]
    python = [_python_dtype(x) for x in values if not isinstance(x, Array)]
    result: np.dtype | None = None
    for group in (arrays, single, python):
        if group:
            lower = np.dtype(jnp.result_type(*group))
            if result is None:
                result = lower
            elif _kind(lower) > _kind(result):
                result = np.dtype(jnp.promote_types(result, lower))
    assert result is not None
    return result


def promoted(*values: Value) -> tuple[Array, ...]:
    """The values in their common dtype and of one rank, ready for an operation of each element."""
    dtype = common_dtype(values)
    return ranked(*(jnp.asarray(x, dtype) for x in values))


def ranked(*values: Array) -> tuple[Array, ...]:
    """The arrays with axes of size one in front, so that all have the same rank."""
    rank = max(x.ndim for x in values)
    return tuple(x.reshape((1,) * (rank - x.ndim) + x.shape) for x in values)


def axes(dim: Axes, rank: int) -> tuple[int, ...]:
    """Axes from 0; None and an empty list are all of them."""
    given = () if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    return tuple(axis % rank for axis in given) if given and rank else tuple(range(rank))


def count(shape: Sequence[int], over: Sequence[int]) -> int:
    """How many elements a reduction over some axes takes together."""
    return math.prod(shape[axis] for axis in over)


def _kind(dtype: np.dtype) -> int:
    kinds = (jnp.integer, jnp.floating, jnp.complexfloating)
    return next((i for i, kind in enumerate(kinds, 1) if jnp.issubdtype(dtype, kind)), 0)


def _python_dtype(value: Number | complex) -> np.dtype:
    if isinstance(value, bool):
        return np.dtype(bool)
    if isinstance(value, int):
        return jax_dtype(torch.int64)
    if isinstance(value, complex):
        return np.dtype(jnp.promote_types(default_float(), jnp.complex64))
    return default_float()
