"""The network of IQN as names, shapes and initial laws. Framework-free; `networks_*` compute it.

With observations x (batch, frames * observation) and fractions tau (batch, n), i = 1 .. cosines:

    h   = relu(head1 x)
    c   = relu(cos_embedding cos(pi i tau))
    z   = relu(ff_1 (h * c))                            for every fraction
    out = value z + advantage z - mean_a advantage z    (batch, n, actions); without dueling: advantage z

`ff_1`, `advantage` and `value` are noisy: in training their weights are `weight + sigma_weight * noise` and their
biases `bias + sigma_bias * noise`, with a standard normal number for each of them, drawn once for a forward pass;
acting has no noise. The noise of a pass is one vector, in the order of `noise_shapes`.

A model is a local and a target network, equal at the start. The policy of a run holds the models, and a parameter is
called `models.0.local.head1.weight`.
"""

import math
from dataclasses import dataclass

import numpy as np

from ...nn.initial import Law, Shape, constant, draw, linear_shapes, uniform
from ...random import random_numpy as random
from .config import IQNConfig

NOISY = ("ff_1", "advantage", "value")


@dataclass(frozen=True)
class Architecture:
    """Sizes of a network."""

    inputs: int
    """Numbers that it sees: frames times observation."""
    actions: int
    hidden: int
    cosines: int
    dueling: bool
    noisy: bool

    @property
    def layers(self) -> dict[str, tuple[int, int]]:
        """Inputs and outputs of each layer."""
        value = {"value": (self.hidden, 1)} if self.dueling else {}
        return {
            "head1": (self.inputs, self.hidden),
            "cos_embedding": (self.cosines, self.hidden),
            "ff_1": (self.hidden, self.hidden),
            "advantage": (self.hidden, self.actions),
            **value,
        }

    @property
    def noise_shapes(self) -> dict[str, Shape]:
        """What a forward pass needs noise for, in the order of its vector: weight and bias of each noisy layer."""
        if not self.noisy:
            return {}
        layers = {name: self.layers[name] for name in NOISY if name in self.layers}
        return {k: v for name, (i, o) in layers.items() for k, v in linear_shapes(name, i, o).items()}

    @property
    def noise_dim(self) -> int:
        """Numbers in the noise of a forward pass."""
        return sum(map(math.prod, self.noise_shapes.values()))


def architecture(config: IQNConfig, observation_dim: int, actions: int) -> Architecture:
    """The network of a config, in a game of these sizes."""
    return Architecture(
        config.frames * observation_dim, actions, config.hidden, config.cosines, config.dueling, config.noisy
    )


def draw_parameters(config: IQNConfig, sizes: Architecture, key: np.ndarray) -> dict[str, np.ndarray]:
    """All models at the start; model k draws from fold_in(key, k).

    Linear layers have torch's default law; of noisy ones weight and bias are U(-sqrt(3 / inputs), sqrt(3 / inputs))
    and the sigmas constant (Fortunato et al. 2018, independent noise).
    """
    found = {}
    for model in range(config.n_models):
        local = draw(_laws(config, sizes), random.fold_in(key, model), config.dtype)
        for network in ("local", "target"):
            found |= {f"models.{model}.{network}.{name}": array.copy() for name, array in local.items()}
    return found


def parameter_names(config: IQNConfig, sizes: Architecture) -> list[str]:
    """The names of all parameters, in their order."""
    own = _laws(config, sizes)
    return [f"models.{k}.{net}.{name}" for k in range(config.n_models) for net in ("local", "target") for name in own]


def _laws(config: IQNConfig, sizes: Architecture) -> dict[str, tuple[Law, Shape]]:
    found: dict[str, tuple[Law, Shape]] = {}
    for name, (inputs, outputs) in sizes.layers.items():
        noisy = sizes.noisy and name in NOISY
        law = uniform(inputs / 3) if noisy else uniform(inputs)
        for parameter, shape in linear_shapes(name, inputs, outputs).items():
            found[parameter] = law, shape
            if noisy:
                found[parameter.replace(".", ".sigma_")] = constant(config.sigma), shape
    return found
