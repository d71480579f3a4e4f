"""A case of the gallery: a torch module in the shape of public code, and its counterparts in JAX."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import haiku as hk
import jax
import numpy as np
import torch
from torch import nn

CONSTANTS = ("mask", "action_scale", "action_bias")  # buffers that keep their values


@dataclass(frozen=True)
class Case:
    """`jax` makes the counterpart of each library, `wrong` ports that look alike and must be refused."""

    torch: Callable[[], nn.Module]
    example: Callable[[], Any]
    jax: dict[str, Callable[[], Any]]
    wrong: dict[str, Callable[[], Any]] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # of `match`, for every library
    own: dict[str, dict[str, Any]] = field(default_factory=dict)  # of `match`, for one library

    def module(self, seed: int = 0) -> nn.Module:
        """The torch module with random parameters and buffers."""
        torch.manual_seed(seed)
        module = self.torch()
        with torch.no_grad():
            for name, tensor in module.state_dict().items():
                if tensor.is_floating_point() and not name.endswith(CONSTANTS):
                    tensor.uniform_(0.5, 1.5) if "var" in name else tensor.normal_(0.0, 0.3)
        return module


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=shape), dtype=torch.float32)


def whole(high: int, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).integers(0, high, shape))


def frames(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).integers(0, 256, shape), dtype=torch.uint8)


def keys(n: int) -> list[jax.Array]:
    return list(jax.random.split(jax.random.key(7), n))


def haiku(function: Callable[..., Any]) -> Any:
    """The function without parameters: `match` initialises it on the example."""
    return hk.without_apply_rng(hk.transform(function))
