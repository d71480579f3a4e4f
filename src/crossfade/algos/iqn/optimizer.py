"""The optimisers of IQN in neutral form: Adam for the local network of each model."""

from collections.abc import Iterable

from ...optim.state import OptimizerState, adam_group
from .config import IQNConfig

EPS = 1e-8
"""Adam's epsilon."""


def names(config: IQNConfig) -> tuple[str, ...]:
    """The name of each model's optimiser."""
    return model_names(config.n_models)


def model_names(n_models: int) -> tuple[str, ...]:
    """The names of the optimisers of so many models; a sole one is `policy`."""
    return ("policy",) if n_models == 1 else tuple(f"model_{k}" for k in range(n_models))


def rates(config: IQNConfig) -> tuple[float, ...]:
    """The learning rate of each model: that of its first agent."""
    return tuple(config.each("lr")[config.members(k)[0]] for k in range(config.n_models))


def optimizer_records(config: IQNConfig, parameters: Iterable[str]) -> dict[str, OptimizerState]:
    """Kind and groups of each model's optimiser, among the parameters with these names."""
    found = list(parameters)
    owned = lambda k: [name for name in found if name.startswith(f"models.{k}.local.")]
    return {
        name: OptimizerState("Adam", (adam_group(owned(k), rate, eps=EPS),), {})
        for k, (name, rate) in enumerate(zip(names(config), rates(config), strict=True))
    }
