"""Making an actor-critic and updating it on a rollout, in torch. Twin: learner_jax.py."""

from collections.abc import Callable, Collection, Mapping

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ...envs.world import ActionSpace, Discrete
from ...nn.categorical_torch import Categorical
from ...nn.distribution import Distribution
from ...nn.gaussian_torch import Gaussian
from ...nn.parameters_torch import filled
from ...optim import eager_torch
from .architecture import Architecture
from .batch import Minibatch, Rollout
from .config import PPOConfig, continuous
from .epochs_torch import over_epochs
from .gae_torch import gae
from .losses_torch import loss
from .network_torch import ActorCritic

Info = dict[str, Tensor]


def make_actions(config: PPOConfig, space: ActionSpace) -> Distribution:
    """The action distribution of a world: categorical, or normal with the config's kind of deviations."""
    if isinstance(space, Discrete):
        return Categorical(space.n, config.floor)
    return Gaussian(space.dim, continuous(config).squashed, continuous(config).log_std)


def make_policy(
    config: PPOConfig,
    observation_dim: int,
    actions: Distribution,
    parameters: Mapping[str, np.ndarray],
    make_network: Callable[[int, Distribution, Architecture], ActorCritic] = ActorCritic,
) -> ActorCritic:
    """The network of a config with the given parameters, by name, in `config.dtype`."""
    return filled(make_network(observation_dim, actions, config.architecture), parameters, config.dtype)


def make_optimizer(config: PPOConfig, policy: ActorCritic, names: Collection[str] | None = None) -> torch.optim.Adam:
    """Adam; every update is given its learning rate, and clips the gradient to `config.clip_norm` as torch does.

    Of the parameters with these names alone, if names are given.
    """
    own = [p for name, p in policy.named_parameters() if names is None or name in names]
    return torch.optim.Adam(own, lr=config.lr, eps=config.adam_eps)


def advantages(rollout: Rollout, config: PPOConfig) -> Float[Tensor, "steps envs"]:
    """The generalised advantage estimate of every step of a rollout."""
    return gae(
        rollout.reward,
        rollout.value,
        rollout.next_value,
        rollout.terminated,
        rollout.truncated,
        config.gamma,
        config.gae_lambda,
        config.truncation,
    )


def normalized(advantage: Float[Tensor, " n"], config: PPOConfig) -> Float[Tensor, " n"]:
    """(A - E A) / (sd(A) + 1e-8) over a minibatch, with the biased deviation; A itself if not so configured."""
    if not config.normalize_advantages:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)


def update(
    policy: ActorCritic,
    optimizer: torch.optim.Optimizer,
    minibatch: Callable[[Int[Tensor, " size"]], Minibatch],
    index: Int[Tensor, " n"],
    learning_rate: float,
    actions: Distribution,
    config: PPOConfig,
) -> Info:
    """One gradient step on a minibatch, and the parts of its loss."""
    batch = minibatch(index)
    batch = batch._replace(advantage=normalized(batch.advantage, config))
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    objective = lambda policy, batch: loss(policy, batch, actions, config)
    return eager_torch.update(policy, optimizer, objective, batch, config.clip_norm)


def update_epochs(
    policy: ActorCritic,
    optimizer: torch.optim.Optimizer,
    minibatch: Callable[[Int[Tensor, " size"]], Minibatch],
    order: Int[Tensor, "epochs n"],
    learning_rate: float,
    actions: Distribution,
    config: PPOConfig,
) -> dict[str, float]:
    """All gradient steps on a rollout, and the mean over them of the parts of the loss.

    `minibatch` gives the steps of the rollout with these numbers. Once the policy has moved further than
    `config.target_kl` the remaining minibatches are skipped; `gradient_steps` counts those that were not.
    """
    step = lambda index: update(policy, optimizer, minibatch, index, learning_rate, actions, config)
    return over_epochs(step, order, config)
