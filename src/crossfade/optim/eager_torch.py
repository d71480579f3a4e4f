"""The gradient step of an optimiser, in torch. As a function of tensors: functional_torch; in JAX: masking_jax."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Loss = Callable[[Any, Any], tuple[Tensor, Mapping[str, Any]]]


def update(
    policy: nn.Module, optimizer: torch.optim.Optimizer, loss: Loss, batch: Any, clip_norm: float | None = None
) -> dict[str, Any]:
    """The step of `optimizer` down `loss(policy, batch) -> (value, info)`, in place; `info` of before it.

    Gradients are those of the optimiser's parameters alone, clipped by their global norm; the others get none.
    """
    value, info = loss(policy, batch)
    owned = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    for parameter, gradient in zip(owned, torch.autograd.grad(value, owned, allow_unused=True), strict=True):
        parameter.grad = gradient
    if clip_norm is not None:
        nn.utils.clip_grad_norm_(owned, clip_norm)
    optimizer.step()
    optimizer.zero_grad()
    return {name: quantity.detach() for name, quantity in info.items()}
