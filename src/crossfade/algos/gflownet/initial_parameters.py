"""Initial parameters, drawn in NumPy and handed to either framework, so that both start from the same bits."""

import math
from typing import Any

import numpy as np

from ...random import random_numpy as random
from .config import GFlowNetConfig, needs_flow


def shapes(config: GFlowNetConfig, env: Any) -> dict[str, tuple[int, ...]]:
    """Every parameter's shape, by its name in torch and in JAX."""
    found: dict[str, tuple[int, ...]] = {}

    def linear(name: str, fan_in: int, fan_out: int) -> int:
        found[f"{name}.weight"], found[f"{name}.bias"] = (fan_out, fan_in), (fan_out,)
        return fan_out

    def trunk(name: str) -> int:
        width = env.observation_dim
        for i in range(config.layers):
            width = linear(f"{name}.{i}", width, config.hidden)
        return width

    width = trunk("trunk")
    linear("forward_head", width, env.n_actions)
    ways_back = env.n_parents + config.legacy_finished_mask
    if config.backward == "learned" or config.legacy_untied_trunk:
        linear("backward_head", trunk("backward_trunk"), ways_back)
    elif config.backward == "shared":
        linear("backward_head", width, ways_back)
    if needs_flow(config.loss):
        linear("flow_head", width, 1)
    return {**found, "log_z": (config.z_dim,)}


def parameters(config: GFlowNetConfig, env: Any, key: np.ndarray, dtype: str = "float32") -> dict[str, np.ndarray]:
    """torch's default law for linear layers, U(-1/sqrt(fan_in), 1/sqrt(fan_in)); log Z at `config.z_init`.

    Draws are made in float64 and rounded, so that a float32 run and a float64 run start at the same place.
    """
    table = shapes(config, env)
    copied = [name for name in table if config.legacy_untied_trunk and name.startswith("backward_trunk.")]
    drawn = {"log_z": np.full(table["log_z"], config.z_init, dtype)}
    for i, name in enumerate(name for name in table if name not in (*copied, *drawn)):
        bound = 1 / math.sqrt(table[name.rsplit(".", 1)[0] + ".weight"][1])
        drawn[name] = random.uniform(random.fold_in(key, i), table[name], "float64", -bound, bound).astype(dtype)
    drawn |= {name: drawn[name.removeprefix("backward_")].copy() for name in copied}
    return {name: drawn[name] for name in table}
