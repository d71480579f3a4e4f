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
from .gae_torch import estimates, normalized
from .losses_torch import loss
from .network_torch import ActorCritic

Info = dict[str, Tensor]


def make_actions(config: PPOConfig, space: ActionSpace) -> Distribution:
    """The action distribution of a world: categorical, or normal with the config's kind of deviations."""
    if isinstance(space, Discrete):
        return Categorical(space.n, config.floor)
    own = continuous(config)
    return Gaussian(space.dim, own.squashed, own.log_std, own.deviation)


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


def advantages(rollout: Rollout, config: PPOConfig) -> tuple[Float[Tensor, "steps envs"], Float[Tensor, "steps envs"]]:
    """What every step of a rollout is weighed by, and the returns that the critic learns."""
    return estimates(rollout.reward, rollout.value, rollout.next_value, rollout.terminated, rollout.truncated, config)


def update(
    policy: ActorCritic,
    optimizer: torch.optim.Optimizer,
    minibatch: Callable[[Int[Tensor, " size"]], Minibatch],
    index: Int[Tensor, " n"],
    learning_rate: float,
    actions: Distribution,
    config: PPOConfig,
    noise: Float[Tensor, "n noise"] | None = None,
) -> Info:
    """One gradient step on a minibatch, and the parts of its loss."""
    batch = minibatch(index)
    batch = batch._replace(advantage=normalized(batch.advantage, config), noise=noise)
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
    noise: Float[Tensor, "epochs n noise"] | None = None,
) -> dict[str, float]:
    """All gradient steps on a rollout, and the mean over them of the parts of the loss.

    `minibatch` gives the steps of the rollout with these numbers, `noise` is `Noise.entropy`. Once the policy has
    moved further than `config.target_kl` the remaining minibatches are skipped; `gradient_steps` counts those that were
    not.
    """
    step = lambda index, noise: update(policy, optimizer, minibatch, index, learning_rate, actions, config, noise)
    return over_epochs(step, order, config, noise)
