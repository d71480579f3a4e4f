"""The optimiser of GFlowNets in neutral form: Adam in two groups, the networks and log Z, under a step schedule."""

from collections.abc import Iterable

from ...optim.state import OptimizerState, adam_group
from .config import GFlowNetConfig


def optimizer_record(config: GFlowNetConfig, names: Iterable[str], step: int) -> OptimizerState:
    """Kind and groups of the optimiser after `step` updates of the parameters with these names."""
    networks = [name for name in names if name != "log_z"]
    decay = config.lr_gamma ** (step // config.lr_period)
    return OptimizerState(
        "Adam",
        (
            adam_group(networks, config.lr * decay, initial_lr=config.lr),
            adam_group(["log_z"], config.lr_z * decay, initial_lr=config.lr_z),
        ),
        {},
    )
