"""Arrays and trees of arrays across the border, as private copies in the same dtype.

On a CPU both frameworks can read NumPy memory without copying it, and JAX runs asynchronously: a batch that is handed
over as a view and then overwritten (what every replay buffer does) reaches the computation half old and half new.
`jax.dlpack.from_dlpack(copy=True)` and `jax.device_put(may_alias=False)` alias all the same, and even `jnp.array` may
read its NumPy argument after it has returned. So the copy is made here, by NumPy, before JAX sees anything.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import PyTree

from ..errors import NoCounterpart, TransferError
from .transfer_torch import FROM_BITS, numpy_to_tensor, tensor_to_numpy


def to_jax(tree: PyTree, *, copy: bool = True, narrow: bool = False) -> PyTree:
    """The same tree holding JAX arrays; leaves may be tensors, NumPy or JAX arrays, or Python numbers.

    copy: leave at True unless nobody writes to the sources while the results live; with False they may share memory.
    narrow: with JAX's 64-bit types off, let float64 become float32 and 64-bit integers become 32-bit ones. Integers
        are checked: one that does not fit raises. Without `narrow` any such leaf raises a TransferError.

    Tensors that require gradients are detached; typed JAX keys stay as they are. The words of a `crossfade.random`
    key are ordinary integers to this function: `key_to_jax` makes a JAX key of them.
    """
    return jax.tree_util.tree_map_with_path(lambda path, leaf: _leaf_to_jax(leaf, _name(path), copy, narrow), tree)


def to_torch(tree: PyTree, *, copy: bool = True) -> PyTree:
    """The same tree holding CPU tensors; leaves may be JAX or NumPy arrays, tensors, or Python numbers.

    copy: leave at True unless nobody writes to the results; with False they may share memory with the sources, and
        an in-place operation in torch would change a JAX array that is supposed to be immutable.

    A typed JAX key becomes the key of `crossfade.random` that draws the same numbers: its two words as int64, on a
    new last axis.
    """
    return jax.tree_util.tree_map_with_path(lambda path, leaf: _leaf_to_torch(leaf, _name(path), copy), tree)


def key_to_jax(words: Any) -> jax.Array:
    """The typed JAX key with the words of a `crossfade.random` key (tensor or NumPy, last axis 2)."""
    words = tensor_to_numpy(words) if isinstance(words, torch.Tensor) else np.asarray(words)
    if words.shape[-1:] != (2,) or words.dtype.kind not in "iu" or (words < 0).any() or (words >= 2**32).any():
        raise TransferError(
            f"expected the words of a crossfade.random key: integers in [0, 2**32) with a last axis of 2; "
            f"got {words.dtype} of shape {words.shape}. Make keys with crossfade.random.key."
        )
    return jax.random.wrap_key_data(words.astype(np.uint32), impl="threefry2x32")


def numpy_to_jax(array: np.ndarray, name: str = "array") -> jax.Array:
    """A JAX array holding a private copy, in the same dtype or not at all."""
    return jax.device_put(np.array(kept(array, name)))


def narrowed(array: np.ndarray, name: str) -> np.ndarray:
    """The array in the dtype JAX keeps; integers that do not fit raise, floats round.

    NumPy arrays that JAX keeps as they are come back uncopied.
    """
    dtype = _jax_dtype(array, name)
    if dtype == array.dtype:
        return array
    result = array.astype(dtype)
    if array.dtype.kind in "iu" and not np.array_equal(result, array):
        raise TransferError(
            f"{name}: expected integers that fit {dtype}, got values from {array.min()} to {array.max()}. "
            f"Run inside `with jax.enable_x64(True):` to keep {array.dtype}."
        )
    return result


def _leaf_to_jax(leaf: Any, name: str, copy: bool, narrow: bool) -> jax.Array:
    if isinstance(leaf, jax.Array):
        return leaf
    if isinstance(leaf, bool | int | float | complex):
        return jnp.asarray(narrowed(np.asarray(leaf), name))  # a Python number claims no width
    if isinstance(leaf, torch.Tensor):
        array = tensor_to_numpy(leaf, name, copy=False)
    elif isinstance(leaf, np.ndarray | np.generic):
        array = np.asarray(leaf)
    else:
        raise TransferError(f"{name}: expected a tensor, an array or a number, got {type(leaf).__name__}.")
    array = narrowed(array, name) if narrow else kept(array, name)
    return jax.device_put(np.array(array) if copy else array)


def _leaf_to_torch(leaf: Any, name: str, copy: bool) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        return leaf.detach().cpu().clone() if copy else leaf.detach().cpu()
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        if str(jax.random.key_impl(leaf)) != "threefry2x32":
            raise NoCounterpart(
                f"{name}: crossfade.random draws from threefry2x32 streams, got a {jax.random.key_impl(leaf)} key. "
                f"Make it with jax.random.key(seed, impl='threefry2x32')."
            )
        return torch.from_numpy(np.asarray(jax.random.key_data(leaf)).astype(np.int64))
    if isinstance(leaf, jax.Array) and not copy:
        return torch.from_dlpack(leaf)
    if isinstance(leaf, np.ndarray) and not copy and leaf.flags.writeable and leaf.dtype not in FROM_BITS:
        return torch.from_numpy(leaf)
    if isinstance(leaf, bool | int | float | complex):
        return torch.tensor(leaf)
    if isinstance(leaf, jax.Array | np.ndarray | np.generic):
        return numpy_to_tensor(leaf, name)
    raise TransferError(f"{name}: expected an array, a tensor or a number, got {type(leaf).__name__}.")


def kept(array: np.ndarray, name: str) -> np.ndarray:
    """The same array; one that JAX would narrow raises."""
    dtype = _jax_dtype(array, name)
    if dtype != array.dtype:
        raise TransferError(
            f"{name}: expected to keep {array.dtype}, but JAX would narrow it to {dtype} because 64-bit types are "
            f"off. Run inside `with jax.enable_x64(True):`, or cast to {dtype} yourself."
        )
    return array


def _jax_dtype(array: np.ndarray, name: str) -> np.dtype:
    if array.dtype.kind in "OSUMm":  # objects, text, times
        raise TransferError(f"{name}: JAX has no dtype for {array.dtype}. Cast it to a number type.")
    return np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "the array"
