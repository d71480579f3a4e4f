"""Torch modules filled from arrays by name; layers_jax.py does the same for Equinox."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np
import torch
from torch import nn

from .parameters import check_shapes

Module = TypeVar("Module", bound=nn.Module)


def filled(policy: Module, parameters: Mapping[str, np.ndarray], dtype: str) -> Module:
    """The policy with the given parameters, by name, in a precision."""
    shapes = lambda arrays: {name: tuple(array.shape) for name, array in arrays.items()}
    check_shapes(shapes(policy.state_dict()), shapes(parameters))
    policy = policy.to(getattr(torch, dtype))
    policy.load_state_dict({name: torch.tensor(array) for name, array in parameters.items()})
    return policy
