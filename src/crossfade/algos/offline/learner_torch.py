"""The learner of an offline agent: one Adam, targets; in torch. Twin: learner_jax.py."""

import torch
from torch import Tensor

from .batch import Batch
from .config import OfflineConfig
from .dispatch_torch import functions
from .losses_torch import loss
from .networks_torch import Modules
from .parameters import EPS, online_names
from .targets_torch import followed, specifications
from .terms_torch import Info


def make_optimizer(policy: Modules, config: OfflineConfig) -> torch.optim.Adam:
    """Adam over all modules but targets."""
    named = dict(policy.named_parameters())
    owned = [named[name] for name in online_names(specifications(policy))]
    return torch.optim.Adam(owned, lr=config.lr, eps=EPS)


def update(policy: Modules, optimizer: torch.optim.Adam, batch: Batch, config: OfflineConfig) -> Info:
    """One gradient step of all modules, then targets follow those of before the step. Modules without a gradient get
    one of 0."""
    before = remember(policy, batch, config)
    value, info = loss(policy, batch, config)
    owned = [p for group in optimizer.param_groups for p in group["params"]]
    gradients = torch.autograd.grad(value, owned, materialize_grads=True)
    for parameter, gradient in zip(owned, gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()
    optimizer.zero_grad()
    follow(policy, before, batch, config)
    return info


def remember(policy: Modules, batch: Batch, config: OfflineConfig) -> dict[str, Tensor]:
    """What targets will follow: the modules as they are before an update."""
    names = followed(batch, config)
    kept = {n: p.detach().clone() for n, p in policy.named_parameters() if n.split(".")[0] in names}
    own = functions(config)
    return kept | own.moved(policy, batch, config) if hasattr(own, "moved") else kept


@torch.no_grad()
def follow(policy: Modules, before: dict[str, Tensor], batch: Batch, config: OfflineConfig) -> None:
    """Targets after an update, from the modules as they were before it: (1 - tau) target + tau module; and what an
    agent moves besides."""
    named, names = dict(policy.named_parameters()), followed(batch, config)
    for name, tensor in before.items():
        if name.startswith("target_"):
            named[name].copy_(tensor)
        elif name.split(".")[0] in names:
            named[f"target_{name}"].lerp_(tensor, config.tau)


@torch.no_grad()
def reset_targets(policy: Modules, config: OfflineConfig) -> None:
    """Targets set to their modules, between the phases."""
    for name in config.agent.reset(config.encoding is not None):
        policy[f"target_{name}"].load_state_dict(policy[name].state_dict())
