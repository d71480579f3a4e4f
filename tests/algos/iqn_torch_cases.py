"""Small networks and batches, and the network in NumPy, for the tests of IQN in torch."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from crossfade.algos.iqn.architecture import Architecture, architecture, draw_parameters
from crossfade.algos.iqn.batch import Batch, Transitions
from crossfade.algos.iqn.config import IQNConfig
from crossfade.algos.iqn.networks_torch import Policy, make_policy
from crossfade.random import random_numpy as random

OBSERVATION, ACTIONS, BATCH, QUANTILES = 3, 4, 5, 6


@dataclass(frozen=True)
class Config(IQNConfig):
    n_agents: int = 1

    @property
    def agents(self) -> int:
        return self.n_agents


def config(**settings) -> Config:
    small = dict(dtype="float64", frames=2, hidden=7, cosines=5, quantiles=QUANTILES, batch_size=BATCH, sigma=0.5)
    return Config(**{**small, **settings})


def sizes(chosen: Config) -> Architecture:
    return architecture(chosen, OBSERVATION, ACTIONS)


def made(chosen: Config) -> Policy:
    """Models whose target networks are not their local ones."""
    found = draw_parameters(chosen, sizes(chosen), random.key(3))
    other = draw_parameters(chosen, sizes(chosen), random.key(4))
    return make_policy(chosen, sizes(chosen), {n: (other if ".target." in n else found)[n] for n in found})


def arrays(module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}


def transitions(chosen: Config, seed: int = 0) -> Transitions:
    """Of every agent; some have no next state, some do not count."""
    rng, n = np.random.default_rng(seed), chosen.agents
    dim, inputs = sizes(chosen).noise_dim, sizes(chosen).inputs
    found = Transitions(
        rng.integers(0, 2, (n, BATCH, inputs)).astype(float),
        rng.integers(0, ACTIONS, (n, BATCH), dtype=np.int32),
        rng.normal(0, 2, (n, BATCH)),
        rng.integers(0, 2, (n, BATCH, inputs)).astype(float),
        np.tile([0.9, 0.0, 0.97, 0.5, 0.99], (n, 1)),
        np.tile([1.0, 1.0, 0.0, 1.0, 1.0], (n, 1)),
        rng.random((n, 3, BATCH, QUANTILES)),
        rng.normal(size=(n, 3, dim)),
    )
    return Transitions(*map(torch.from_numpy, found))


def of(batch: Transitions, agent: int = 0) -> Transitions:
    return Transitions(*(part[agent] for part in batch))


def batch_of(chosen: Config, seed: int = 0, ready: bool = True, copy: bool = False) -> Batch:
    return Batch(transitions(chosen, seed), torch.tensor(ready), torch.tensor(copy), {})


def forward(network: dict[str, np.ndarray], x: np.ndarray, fractions: np.ndarray, noise: np.ndarray | None):
    """The network in NumPy, sample by sample and fraction by fraction."""
    given = list(() if noise is None else noise)

    def layer(name: str) -> tuple[np.ndarray, np.ndarray]:
        found = []
        for kind in ("weight", "bias"):
            array = network[f"{name}.{kind}"]
            if given:
                eps = np.array([given.pop(0) for _ in range(array.size)]).reshape(array.shape)
                array = array + network[f"{name}.sigma_{kind}"] * eps
            found.append(array)
        return found[0], found[1]

    ff, advantage = layer("ff_1"), layer("advantage")
    value = layer("value") if "value.weight" in network else None
    assert not given
    linear = lambda w, b, v: np.array([sum(w[i, j] * v[j] for j in range(len(v))) + b[i] for i in range(len(b))])
    relu = lambda v: np.array([max(0.0, e) for e in v])
    found = np.zeros((*fractions.shape, ACTIONS))
    for b, n in np.ndindex(fractions.shape):
        h = relu(linear(network["head1.weight"], network["head1.bias"], x[b]))
        cosines = [
            math.cos(math.pi * i * fractions[b, n]) for i in range(1, network["cos_embedding.weight"].shape[1] + 1)
        ]
        c = relu(linear(network["cos_embedding.weight"], network["cos_embedding.bias"], cosines))
        z = relu(linear(*ff, h * c))
        a = linear(*advantage, z)
        found[b, n] = a if value is None else linear(*value, z) + a - a.sum() / len(a)
    return found
