"""The sum of an agent's terms, given the module that has them: torch.compile traces this, but no import, in torch."""

from importlib import import_module
from types import ModuleType

import torch

from .agent import Agent
from .batch import Batch
from .config import OfflineConfig
from .fb_repr.params import FBRepr
from .hilp.params import HILP
from .iql.params import IQL
from .networks_torch import Modules
from .rebrac.params import ReBRAC
from .terms_torch import Info, Scalar


def functions(config: OfflineConfig) -> ModuleType:
    """The module with the agent's terms; Python keeps those that are loaded."""
    return import_module(config.agent.torch)


def summed(own: ModuleType, modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """`losses_torch.loss` by the agent's own functions."""
    agent, phase = config.agent, batch.phase
    skipped = agent.when_full if phase == "finetuning" and not bool(batch.full) else ()
    batch = own.prepare(modules, batch, config)
    zero = torch.zeros_like(batch.rewards[0])
    total, info = zero, {}
    for name in agent.terms[phase]:
        if name in skipped:
            value, told = zero, dict.fromkeys(_told(agent), zero)
        else:
            value, told = getattr(own, name)(modules, batch, config)
            total = total + value
        info |= {name: value, **{f"{name}/{key}": quantity for key, quantity in told.items()}}
    return total, {name: quantity.detach() for name, quantity in {"loss": total, **info}.items()}


def _told(agent: Agent) -> tuple[str, ...]:
    """What the term tells that only full updates have: an actor learns by regression, by ReBRAC, or with cloning."""
    match agent:
        case IQL(actor_loss="awr") | FBRepr() | HILP():
            return "advantage", "log_prob", "mse"
        case ReBRAC():
            return "q", "mse"
        case _:
            return "q", "log_prob", "mse"
