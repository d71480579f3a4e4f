"""The networks of IQN (Dabney et al. 2018), in torch; architecture.py says what they compute. Twin: networks_jax.py."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ...nn.noisy_torch import IndependentNoisyLinear
from ...nn.parameters_torch import filled
from .architecture import NOISY, Architecture
from .config import IQNConfig


class Network(nn.Module):
    """Quantiles of the return of every action, at given fractions; architecture.py has the formulas.

    `noise` is that of a forward pass, as `Architecture.noise_shapes` orders it; without it the weights are their means.
    Parameters are drawn by `draw_parameters`: made here they mean nothing.
    """

    def __init__(self, sizes: Architecture):
        super().__init__()
        self.sizes = sizes
        self.head1 = _layer(sizes, "head1")
        self.cos_embedding = _layer(sizes, "cos_embedding")
        self.ff_1 = _layer(sizes, "ff_1")
        self.advantage = _layer(sizes, "advantage")
        self.value = _layer(sizes, "value") if sizes.dueling else None

    def forward(
        self,
        x: Float[Tensor, "batch inputs"],
        fractions: Float[Tensor, "batch n"],
        noise: Float[Tensor, " noise_dim"] | None,
    ) -> Float[Tensor, "batch n actions"]:
        noises = self._noises(noise)
        multiples = math.pi * torch.arange(1, self.sizes.cosines + 1, dtype=x.dtype, device=x.device)
        h = self.head1(x).relu()
        c = self.cos_embedding((fractions[:, :, None] * multiples).cos()).relu()
        z = self.ff_1(h[:, None] * c, *noises["ff_1"]).relu()
        advantage = self.advantage(z, *noises["advantage"])
        if self.value is None:
            return advantage
        return self.value(z, *noises["value"]) + advantage - advantage.mean(-1, keepdim=True)

    def _noises(self, noise: Float[Tensor, " noise_dim"] | None) -> dict[str, tuple[Tensor, ...]]:
        """The noise of the weight and of the bias of each noisy layer; nothing where there is none."""
        shapes = self.sizes.noise_shapes
        if noise is None or not shapes:
            return dict.fromkeys(NOISY, ())
        parts = noise.split([math.prod(shape) for shape in shapes.values()])
        each = {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
        return {name: (each[f"{name}.weight"], each[f"{name}.bias"]) for name in NOISY if f"{name}.weight" in each}


class Model(nn.Module):
    """A network that learns and the one that gives its targets."""

    def __init__(self, local: Network, target: Network):
        super().__init__()
        self.local, self.target = local, target
        self.target.requires_grad_(False)


class Policy(nn.Module):
    """All models of a run."""

    def __init__(self, models: Iterable[Model]):
        super().__init__()
        self.models: Sequence[Model] = nn.ModuleList(models)  # pyright: ignore


def make_policy(config: IQNConfig, sizes: Architecture, parameters: Mapping[str, np.ndarray]) -> Policy:
    """The models of a config with the given parameters, by name, in `config.dtype`."""
    models = (Model(Network(sizes), Network(sizes)) for _ in range(config.n_models))
    policy = filled(Policy(models), parameters, config.dtype)
    if config.has("attached_target"):
        policy.requires_grad_(True)
    return policy


def _layer(sizes: Architecture, name: str) -> nn.Module:
    noisy = sizes.noisy and name in NOISY
    return (IndependentNoisyLinear if noisy else nn.Linear)(*sizes.layers[name])
