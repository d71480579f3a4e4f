"""What to log about a gradient, in torch. Twin: statistics_jax.py."""

from collections.abc import Mapping

import torch
from torch import Tensor

from .terms_torch import Info


def gradient_statistics(gradients: Mapping[str, Tensor], summed: bool) -> Info:
    """Largest and smallest entry and the norm of a gradient; `summed`: the sum of the norms of its arrays instead of
    the norm of all."""
    each = list(gradients.values())
    norms = torch.stack([gradient.norm() for gradient in each])
    return {
        "max": torch.stack([gradient.max() for gradient in each]).max(),
        "min": torch.stack([gradient.min() for gradient in each]).min(),
        "norm": norms.sum() if summed else norms.norm(),
    }
