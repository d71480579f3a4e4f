"""Tensors and NumPy arrays, as private copies in the same dtype; without JAX."""

from typing import Any

import ml_dtypes
import numpy as np
import torch

from ..errors import TransferError

# Types NumPy knows only through ml_dtypes cross as integers of the same width.
_BY_BITS = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
}
FROM_BITS = {numpy: (bits, dtype) for dtype, (bits, numpy) in _BY_BITS.items()}
_BITS = {torch.int16: np.dtype(np.int16), torch.uint8: np.dtype(np.uint8)}


def tensor_to_numpy(tensor: torch.Tensor, name: str = "tensor", *, copy: bool = True) -> np.ndarray:
    """A private NumPy copy of a tensor; bfloat16 and float8 arrive as `ml_dtypes` types."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        raise TransferError(
            f"{name}: expected a dense tensor with values, got {tensor.layout} on {tensor.device}. "
            f"Call .to_dense() or materialise it first."
        )
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if copy:  # by torch, because `.numpy()` marks the memory it is called on as seen by NumPy, for ever
        tensor = tensor.clone(memory_format=torch.contiguous_format)
    if tensor.dtype in _BY_BITS:
        bits, dtype = _BY_BITS[tensor.dtype]
        return tensor.contiguous().view(bits).numpy().view(dtype)
    return tensor.numpy()


def numpy_to_tensor(array: Any, name: str = "array") -> torch.Tensor:
    """A tensor that owns a private copy of an array."""
    array = np.array(array, copy=True)
    if array.dtype in FROM_BITS:
        bits, dtype = FROM_BITS[array.dtype]
        return torch.from_numpy(array.view(_BITS[bits])).view(dtype)
    try:
        return torch.from_numpy(array)
    except TypeError as error:
        raise TransferError(f"{name}: torch has no dtype for {array.dtype}. Cast it to one torch knows.") from error
