"""The rim: torch tensors, JAX arrays and random keys to NumPy and back.

A framework is imported only to give its own arrays; to take them it must have been imported already.
"""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import CheckpointError, TransferError, UsageError
from .tensorfile import numpy_dtype

SIDES = ("torch", "jax", "numpy")
THREEFRY = "threefry2x32"  # JAX's default
KEY_WORDS = {THREEFRY: 2, "rbg": 4, "unsafe_rbg": 4}  # of a key of each of JAX's generators


def is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_jax_array(value: Any) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def is_array(value: Any) -> bool:
    """True for a NumPy array or scalar, a torch tensor or a JAX array."""
    return isinstance(value, np.ndarray | np.generic) or is_tensor(value) or is_jax_array(value)


def to_numpy(value: Any, name: str) -> np.ndarray:
    """`value` as a NumPy array of the same dtype, without a copy where the memory is on this host."""
    if is_tensor(value):
        return _tensor_to_numpy(value, name)
    if is_jax_array(value):
        return _jax_to_numpy(value, name)
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    raise CheckpointError(
        f"{name}: expected a torch tensor, a JAX array or a NumPy array, "
        f"got {type(value).__module__}.{type(value).__qualname__}."
    )


def _tensor_to_numpy(tensor: Any, name: str) -> np.ndarray:
    import torch

    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        raise CheckpointError(
            f"{name}: expected a dense tensor with data, got {tensor.layout} {tensor.dtype} on {tensor.device}; "
            f"make it dense (`.to_dense()`, `.dequantize()`) or give it data (`.to_empty()`) before saving."
        )
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    dtype = str(tensor.dtype).removeprefix("torch.")
    if bits := _bits(dtype):
        return tensor.view(getattr(torch, bits)).numpy().view(numpy_dtype(dtype))
    return tensor.numpy()


def _bits(dtype: str) -> str | None:
    """The integer type of equal width through which torch and NumPy exchange a dtype only one of them has."""
    return "int16" if dtype == "bfloat16" else "uint8" if dtype.startswith("float8_") else None


def _jax_to_numpy(array: Any, name: str) -> np.ndarray:
    import jax

    if jax.numpy.issubdtype(array.dtype, jax.dtypes.prng_key):
        raise CheckpointError(f"{name}: expected numbers, got a random key; store `jax.random.key_data(key)`.")
    if not array.is_fully_addressable:
        raise CheckpointError(
            f"{name}: expected an array this process holds whole, got one spread over several hosts; "
            f"gather it first (`jax.experimental.multihost_utils.process_allgather`)."
        )
    return np.asarray(array)


def memory(value: Any) -> Any:
    """A key equal for two names of one array (tied weights), or None for an empty array."""
    if is_tensor(value):
        return (value.device, value.data_ptr(), value.shape, value.stride(), value.dtype) if value.numel() else None
    if isinstance(value, np.ndarray):
        address = value.__array_interface__["data"][0]
        return (address, value.shape, value.strides, value.dtype.str) if value.size else None
    return id(value)


def giver(side: str) -> Callable[[np.ndarray, str], Any]:
    """The function (array, name) that hands an array out on one side."""
    check_side(side)
    return {"torch": _give_torch, "jax": _give_jax, "numpy": lambda array, _: array}[side]


def check_side(side: str) -> None:
    if side not in SIDES:
        raise UsageError(f"expected side to be one of {', '.join(SIDES)}, got {side!r}.")


def _give_torch(array: np.ndarray, name: str) -> Any:
    import torch

    dtype = array.dtype.name
    if bits := _bits(dtype):
        return torch.from_numpy(array.view(bits)).view(getattr(torch, dtype))
    return torch.from_numpy(array)


def _give_jax(array: np.ndarray, name: str) -> Any:
    import jax
    import jax.numpy as jnp

    narrow = jax.dtypes.canonicalize_dtype(array.dtype)
    if narrow != array.dtype:
        raise TransferError(
            f"{name}: expected to keep {array.dtype}, but JAX would narrow it to {narrow} because 64-bit types are "
            f"off. Load inside `with jax.enable_x64(True):`, or load with side='numpy' and cast it yourself."
        )
    return jnp.asarray(np.array(array))  # private: the caller may write to the NumPy views of the same file


def key_to_words(key: Any) -> tuple[np.ndarray, str]:
    """The uint32 words of a random key (or an array of keys) and the name of its generator."""
    impl = THREEFRY
    if is_jax_array(key):
        import jax

        if jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key):
            impl = str(jax.random.key_impl(key))
            key = jax.random.key_data(key)
    words = to_numpy(key, "key")
    if impl not in KEY_WORDS:
        raise CheckpointError(f"key: expected a generator among {', '.join(KEY_WORDS)}, got {impl!r}.")
    if words.dtype.kind not in "iu" or words.ndim == 0 or words.shape[-1] != KEY_WORDS[impl]:
        raise CheckpointError(
            f"key: expected a JAX key or integer words of shape (..., {KEY_WORDS[impl]}), got {words.dtype} "
            f"{words.shape}."
        )
    if words.size and not 0 <= int(words.min()) <= int(words.max()) < 2**32:
        raise CheckpointError(f"key: expected words from 0 to 2**32 - 1, got {words.min()} to {words.max()}.")
    return words.astype(np.uint32), impl


def words_to_key(words: np.ndarray, impl: str, side: str) -> Any:
    """A key as that side draws from it: a typed JAX key, a `crossfade.random` torch key, or uint32 words."""
    if side == "jax":
        import jax

        return jax.random.wrap_key_data(jax.numpy.array(words), impl=impl)
    if side == "torch":
        return giver("torch")(words.astype(np.int64), "key")
    return words
