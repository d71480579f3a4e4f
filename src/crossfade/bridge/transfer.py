"""Arrays across the border, always as private copies."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from ..errors import TransferError


def tensor_to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """A private NumPy copy of a tensor; bfloat16 arrives as `ml_dtypes.bfloat16`."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.int16).numpy().copy().view(ml_dtypes.bfloat16)
    return np.array(tensor.numpy(), copy=True)


def numpy_to_tensor(array: Any) -> torch.Tensor:
    """A tensor that owns a private copy of an array."""
    array = np.array(array, copy=True)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def numpy_to_jax(array: np.ndarray, name: str = "array") -> jax.Array:
    """A JAX array holding a private copy, in the same dtype or not at all."""
    result = jnp.array(array)
    if result.dtype != array.dtype:
        raise TransferError(
            f"{name}: expected to keep {array.dtype}, but JAX would narrow it to {result.dtype} because "
            f"64-bit types are off. Run inside `with jax.enable_x64(True):`, or cast to {result.dtype} yourself."
        )
    return result
