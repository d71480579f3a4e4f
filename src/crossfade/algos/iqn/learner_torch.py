"""The learner of IQN: optimisers, target networks, one update; in torch. Twin: learner_jax.py."""

import torch
from torch import Tensor, nn

from ...optim.ema_torch import ema
from .averages_torch import learned
from .batch import Batch
from .config import IQNConfig
from .losses_torch import model_loss
from .networks_torch import Policy
from .optimizer import EPS, names, rates
from .pure_update_torch import pure_update as pure_update

Info = dict[str, Tensor]


def make_optimizers(config: IQNConfig, policy: Policy) -> dict[str, torch.optim.Adam]:
    """Adam for the local network of each model, by name; every update clips the gradient to `config.clip_norm`."""
    each = zip(names(config), policy.models, rates(config), strict=True)
    return {name: torch.optim.Adam(model.local.parameters(), lr=rate, eps=EPS) for name, model, rate in each}


def follow(policy: Policy, config: IQNConfig) -> None:
    """target = tau local + (1 - tau) target, for every model."""
    for model in policy.models:
        model.target.load_state_dict(ema(model.target.state_dict(), model.local.state_dict(), config.tau))


def copy_targets(policy: Policy) -> None:
    """target = local, for every model."""
    for model in policy.models:
        model.target.load_state_dict(model.local.state_dict())


def update(policy: Policy, optimizers: dict[str, torch.optim.Adam], batch: Batch, config: IQNConfig) -> Info:
    """One gradient step of every model, in place, and the means over models of what its loss tells.

    Target networks are copied first if the batch says so, and follow afterwards if the config does. A batch that is
    not ready teaches nothing: then all that is told is 0, also `learned`.
    """
    if batch.copy:
        copy_targets(policy)
    if not batch.ready:
        return learned([])
    infos = []
    for number, name in enumerate(names(config)):
        optimizers[name].zero_grad()
        value, info = model_loss(policy, number, batch.transitions, config)
        value.backward()
        if config.clip_norm is not None:
            nn.utils.clip_grad_norm_(policy.models[number].local.parameters(), config.clip_norm)
        optimizers[name].step()
        infos.append(info)
    if config.follows:
        follow(policy, config)
    return learned(infos)
