"""The optimiser of PPO in neutral form: Adam, its learning rate set anew for every update."""

from collections.abc import Iterable

from ...optim.state import OptimizerState, adam_group
from .config import PPOConfig


def optimizer_record(config: PPOConfig, names: Iterable[str], step: int) -> OptimizerState:
    """Kind and groups of the optimiser after `step` updates of the parameters with these names."""
    rate = config.learning_rate(step - 1) if step else config.lr
    return OptimizerState("Adam", (adam_group(list(names), rate, eps=config.adam_eps),), {})
