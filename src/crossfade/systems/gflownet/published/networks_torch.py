"""Upstream's networks as lists of Linear layers: read from its state dicts, written in either layout of keys.

A network is a torch Sequential of Linear and LeakyReLU, so its keys are numbers. One that shares the forward trunk:

    nested   Sequential(trunk, Linear):  0.0.weight, 0.2.weight, .. 1.weight      upstream itself
    flat     Sequential(*trunk, Linear): 0.weight, 2.weight, .. 4.weight          a fork, which cannot read nested ones
"""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import torch

from ....checkpoint.sides import to_numpy
from ....errors import CheckpointError, NoCounterpart

Layout = Literal["nested", "flat"]
Arrays = Mapping[str, np.ndarray]
Layer = tuple[np.ndarray, np.ndarray]  # weight and bias
Network = list[Layer]
KINDS = ("weight", "bias")


def read(state_dict: Mapping[str, Any], label: str) -> Network:
    """Linear layers in the order of their numbers, which must fit each other."""
    places: dict[tuple[int, ...], dict[str, np.ndarray]] = {}
    for key, value in state_dict.items():
        *numbers, kind = key.split(".")
        if not numbers or not all(n.isdecimal() for n in numbers) or kind not in KINDS:
            raise NoCounterpart(
                f"{label}: expected an MLP, whose keys are numbers and weight or bias; got {key!r}. Other policies "
                f"(trees, graphs, convolutions) have no counterpart here."
            )
        places.setdefault(tuple(map(int, numbers)), {})[kind] = to_numpy(value, key)
    layers = [places[place] for place in sorted(places)]
    if not layers or not all(set(layer) == set(KINDS) for layer in layers):
        raise CheckpointError(f"{label}: expected Linear layers, each with weight and bias; got {list(state_dict)}.")
    network = [(layer["weight"], layer["bias"]) for layer in layers]
    widths = [network[0][0].shape[-1:], *(bias.shape for _, bias in network)]
    if any(w.shape != (*widths[i + 1], *widths[i]) for i, (w, _) in enumerate(network)):
        raise CheckpointError(f"{label}: expected layers that fit each other, got {[w.shape for w, _ in network]}.")
    return network


def is_nested(state_dict: Mapping[str, Any]) -> bool:
    """Whether the keys are those of Sequential(trunk, Linear)."""
    return "0.weight" not in state_dict


def write(network: Network, nested: bool) -> dict[str, torch.Tensor]:
    """The state dict; every other number belongs to an activation."""
    flat = [str(2 * i) for i in range(len(network))]
    keys = [*(f"0.{key}" for key in flat[:-1]), "1"] if nested else flat
    return {
        f"{key}.{kind}": torch.from_numpy(array.copy())
        for key, layer in zip(keys, network, strict=True)
        for kind, array in zip(KINDS, layer, strict=True)
    }


def shares_trunk(network: Network, forward: Network, nested: bool, label: str) -> bool:
    """Whether all but the last layer are those of the forward policy, bit for bit."""
    same = len(network) == len(forward) and all(
        x.shape == y.shape and x.tobytes() == y.tobytes()
        for a, b in zip(network[:-1], forward[:-1], strict=True)
        for x, y in zip(a, b, strict=True)
    )
    if nested and not same:
        raise CheckpointError(
            f"{label}: its keys say that it shares the forward policy's trunk, but the arrays differ."
        )
    return same


# By our names


def named(network: Network, names: list[str]) -> dict[str, np.ndarray]:
    """Weights and biases under the name of each layer."""
    return {
        f"{name}.{kind}": array
        for name, layer in zip(names, network, strict=True)
        for kind, array in zip(KINDS, layer, strict=True)
    }


def linear(arrays: Arrays, name: str) -> Layer:
    return arrays[f"{name}.weight"], arrays[f"{name}.bias"]


def stack(arrays: Arrays, name: str) -> Network:
    """The layers `name.0`, `name.1`, .. as far as there are any."""
    layers = []
    while f"{name}.{len(layers)}.weight" in arrays:
        layers.append(linear(arrays, f"{name}.{len(layers)}"))
    return layers
