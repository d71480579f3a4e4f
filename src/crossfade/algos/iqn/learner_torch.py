"""The learner of IQN: optimisers, one update; in torch. Twin: learner_jax.py."""

import torch
from torch import Tensor, nn

from .averages_torch import learned
from .batch import Batch
from .config import IQNConfig
from .losses_torch import model_loss
from .networks_torch import Policy
from .optimizer import EPS, names, rates
from .targets_torch import copy_targets, follow

Info = dict[str, Tensor]


def make_optimizers(config: IQNConfig, policy: Policy) -> dict[str, torch.optim.Adam]:
    """Adam for the local network of each model, by name; every update clips the gradient to `config.clip_norm`."""
    each = zip(names(config), policy.models, rates(config), strict=True)
    return {name: torch.optim.Adam(model.local.parameters(), lr=rate, eps=EPS) for name, model, rate in each}


def update(policy: Policy, optimizers: dict[str, torch.optim.Adam], batch: Batch, config: IQNConfig) -> Info:
    """One gradient step of every model, and the means over the models of what to log.

    Target networks are copied first if the batch says so, ready or not, and follow after the step if they are soft. A
    batch that is not ready teaches nothing: then all that is told is 0, also `learned`.
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
