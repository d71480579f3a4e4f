"""Epochs of minibatches in torch, whatever makes the gradient steps; in JAX they are a scan in learner_jax.py."""

from collections.abc import Callable, Mapping
from itertools import repeat
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .config import PPOConfig


def over_epochs(
    step: Callable[[Int[Tensor, " size"], Float[Tensor, "size noise"] | None], Mapping[str, Any]],
    order: Int[Tensor, "epochs n"],
    config: PPOConfig,
    noise: Float[Tensor, "epochs n noise"] | None = None,
) -> dict[str, float]:
    """`step(index, noise)` on every minibatch of every epoch, and the means of what it gives.

    Once `approx_kl` is above `config.target_kl` the remaining minibatches are skipped; `gradient_steps` counts those
    that were not.
    """
    infos: list[Mapping[str, Any]] = []
    indices = order.reshape(len(order) * config.minibatches, -1)
    noises = repeat(None) if noise is None else noise.reshape(*indices.shape, -1)
    for index, own in zip(indices, noises, strict=False):
        if infos and config.target_kl is not None and float(infos[-1]["approx_kl"]) > config.target_kl:
            break
        infos.append(step(index, own))
    means = {name: float(torch.stack([torch.as_tensor(i[name]) for i in infos]).mean()) for name in infos[0]}
    return {**means, "gradient_steps": float(len(infos))}
