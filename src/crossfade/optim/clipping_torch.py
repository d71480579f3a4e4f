"""Gradient clipping by the global norm, for functional torch. Twin: clipping_jax.py."""

from collections.abc import Callable

import torch
from torch import Tensor

EPS = 1e-6  # beside the norm, as `torch.nn.utils.clip_grad_norm_` has it


def clip_by_global_norm(max_norm: float) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    """g min(1, max_norm / (|g| + 1e-6)), with |g| over all arrays together: `torch.nn.utils.clip_grad_norm_`."""

    def clip(grads: dict[str, Tensor]) -> dict[str, Tensor]:
        norm = torch.stack([g.square().sum() for g in grads.values()]).sum().sqrt()
        factor = (max_norm / (norm + EPS)).clamp(max=1.0)
        return {name: g * factor for name, g in grads.items()}

    return clip
