"""Batches from NumPy to torch."""

import numpy as np
import torch

from .batch import Batch


def to_tensors(batch: Batch, dtype: torch.dtype) -> Batch:
    """The batch, floats in `dtype`; integers become the int64 that torch indexes with."""

    def convert(array: np.ndarray | None) -> torch.Tensor | None:
        if array is None:
            return None
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return (
            tensor.to(dtype) if tensor.is_floating_point() else tensor if tensor.dtype == torch.bool else tensor.long()
        )

    return Batch(*map(convert, batch))
