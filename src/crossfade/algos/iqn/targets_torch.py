"""How target networks follow the local ones, in place, in torch; in JAX they are part of a pure step."""

from ...optim.ema_torch import ema
from .config import IQNConfig
from .networks_torch import Policy


def follow(policy: Policy, config: IQNConfig) -> None:
    """target = tau local + (1 - tau) target, for every model."""
    for model in policy.models:
        model.target.load_state_dict(ema(model.target.state_dict(), model.local.state_dict(), config.tau))


def copy_targets(policy: Policy) -> None:
    """target = local, for every model."""
    for model in policy.models:
        model.target.load_state_dict(model.local.state_dict())
