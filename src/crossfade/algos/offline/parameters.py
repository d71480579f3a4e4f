"""The parameters of an offline agent: names, initial values, and its one optimiser in neutral form. Framework-free."""

import numpy as np

from ...nn.initial import draw
from ...optim.state import OptimizerState, adam_group
from .agent import Agent, Sizes, online
from .layers import Laws, within
from .modules import Module, constants

EPS = 1e-8
"""Adam's epsilon."""


def laws(modules: dict[str, Module]) -> Laws:
    """Initial law and shape of every parameter, by name."""
    return {name: law for key, module in modules.items() for name, law in within(key, module.laws).items()}


def draw_parameters(agent: Agent, sizes: Sizes, key: np.ndarray, dtype: str = "float32") -> dict[str, np.ndarray]:
    """Parameters at the start. A target begins as its module, unless the agent says that it does not."""
    found = draw(laws(agent.modules(sizes)), key, dtype)
    own = agent.uncopied(sizes)
    copied = lambda name: name.startswith("target_") and name.split(".")[0] not in own
    source = lambda name: name.removeprefix("target_")
    return {n: found[source(n)].copy() if copied(n) and source(n) in found else a for n, a in found.items()}


def online_names(modules: dict[str, Module]) -> list[str]:
    """The parameters that the optimiser owns: all but those of targets and those that cancel."""
    own = lambda module: {name: law for name, law in module.laws.items() if name not in constants(module)}
    return [name for key in online(modules) for name in within(key, own(modules[key]))]


def optimizer_records(modules: dict[str, Module], lr: float) -> dict[str, OptimizerState]:
    """The one optimiser, Adam over all modules but targets, without moments."""
    return {"policy": OptimizerState("Adam", (adam_group(online_names(modules), lr, eps=EPS),), {})}
