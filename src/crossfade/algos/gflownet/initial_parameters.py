"""Initial parameters of a GFlowNet, drawn in NumPy and handed to either framework."""

from typing import Any

import numpy as np

from ...nn import initial
from .config import GFlowNetConfig, needs_flow


def shapes(config: GFlowNetConfig, env: Any) -> dict[str, initial.Shape]:
    """Every parameter's shape, by its name in torch and in JAX."""
    widths = [env.observation_dim, *[config.hidden] * config.layers]
    n_backward = env.n_parents + config.legacy_finished_mask

    def trunk(name: str) -> dict[str, initial.Shape]:
        layers = zip(widths[:-1], widths[1:], strict=True)
        return {k: v for i, pair in enumerate(layers) for k, v in initial.linear_shapes(f"{name}.{i}", *pair).items()}

    found = trunk("trunk") | initial.linear_shapes("forward_head", widths[-1], env.n_actions)
    if config.backward == "learned" or config.legacy_untied_trunk:
        found |= trunk("backward_trunk")
    if config.backward in ("learned", "shared"):
        found |= initial.linear_shapes("backward_head", widths[-1], n_backward)
    if needs_flow(config.loss):
        found |= initial.linear_shapes("flow_head", widths[-1], 1)
    return found | {"log_z": (config.z_dim,)}


def parameters(config: GFlowNetConfig, env: Any, key: np.ndarray, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Linear layers by torch's default law, U(-1/sqrt(fan_in), 1/sqrt(fan_in)); log Z at `config.z_init`."""
    table = shapes(config, env)
    copied = [name for name in table if config.legacy_untied_trunk and name.startswith("backward_trunk.")]
    fan_in = lambda name: table[name.rsplit(".", 1)[0] + ".weight"][1]
    laws = {
        name: (initial.uniform(fan_in(name)), table[name]) for name in table if name not in copied and name != "log_z"
    }
    drawn = initial.draw(laws, key, dtype) | {"log_z": np.full(table["log_z"], config.z_init, dtype)}
    drawn |= {name: drawn[name.removeprefix("backward_")].copy() for name in copied}
    return {name: drawn[name] for name in table}
