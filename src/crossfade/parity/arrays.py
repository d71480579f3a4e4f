"""Conversion of arrays: to each framework in the precision of the run, and back to named NumPy arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ..bridge.libraries import named_leaves
from ..bridge.transfer import numpy_to_tensor, tensor_to_numpy
from ..errors import TransferError, UsageError

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Both frameworks' default precision, for the length of a run: constants must be as wide as the weights."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(DTYPES[dtype])
    try:
        with jax.enable_x64(dtype == "float64"):
            yield
    finally:
        torch.set_default_dtype(before)


def to_numpy(leaf: Any, what: str = "value") -> np.ndarray:
    """A private NumPy copy of a tensor, a JAX array (a typed key gives its words), or a number."""
    if isinstance(leaf, torch.Tensor):
        return tensor_to_numpy(leaf)
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.array(leaf)
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        raise UsageError(f"{what}: expected arrays or numbers to compare, got {type(leaf).__qualname__}.")
    return array


def leaves(tree: Any, name: str) -> dict[str, np.ndarray]:
    """A pytree of arrays of either framework as named NumPy copies; `name` stands for the root."""
    return {".".join(filter(None, (name, path))): to_numpy(leaf, name) for path, leaf in named_leaves(tree).items()}


def cast(array: np.ndarray, dtype: str) -> np.ndarray:
    """Floats in the precision of the run; all else as it is."""
    return array.astype(dtype) if array.dtype.kind == "f" else array


def jitter(array: np.ndarray) -> np.ndarray:
    """Numbers moved by one unit in the last place, up and down in turn. Whole numbers stay: they are flags, counts and
    exact zeros, on which comparisons turn."""
    if array.dtype.kind != "f":
        return array
    towards = np.where(np.arange(array.size).reshape(array.shape) % 2, np.inf, -np.inf).astype(array.dtype)
    return np.where(array == np.round(array), array, np.nextafter(array, towards))


def jitter_tree(tree: Any, dtype: str) -> Any:
    """A batch in the precision of the run, moved by one unit in the last place."""
    return jax.tree.map(lambda leaf: jitter(cast(to_numpy(leaf, "batch"), dtype)), tree)


def torch_tree(tree: Any, dtype: str) -> Any:
    """A batch as tensors."""
    return jax.tree.map(lambda leaf: numpy_to_tensor(cast(to_numpy(leaf, "batch"), dtype)), tree)


def jax_tree(tree: Any, dtype: str) -> Any:
    """A batch as JAX arrays; 64-bit integers become 32-bit ones where JAX has no others, if they fit."""
    return jax.tree.map(lambda leaf: jax_array(cast(to_numpy(leaf, "batch"), dtype)), tree)


def jax_array(array: np.ndarray) -> jax.Array:
    """One array in the widest type of its kind that JAX has at the moment. It may share memory with its source, which
    nobody writes to again."""
    if array.dtype.kind in "iu":
        narrow = array.astype(jax.dtypes.canonicalize_dtype(array.dtype))
        if not np.array_equal(narrow, array):
            raise TransferError(
                f"integers up to {np.abs(array).max()} do not fit {narrow.dtype}, the widest JAX has with 64-bit types "
                f"off. Keep them below 2**31, or check with dtype='float64'."
            )
        array = narrow
    return jnp.asarray(array)
