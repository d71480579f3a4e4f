"""Learning in torch: make a network and its optimiser, take the steps of an update. Twin: learner_jax.py."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from .batch import Minibatch, Rollout
from .config import PPOConfig
from .gae_torch import gae
from .losses_torch import loss
from .network_torch import ActorCritic

Info = dict[str, Tensor]


def make_policy(
    config: PPOConfig, observation_dim: int, n_actions: int, parameters: Mapping[str, np.ndarray]
) -> ActorCritic:
    """The network of a config that holds these parameters, in the config's precision."""
    policy = ActorCritic(observation_dim, n_actions, config.network, config.hidden, config.layers, config.base)
    policy.to(getattr(torch, config.dtype))
    policy.load_state_dict({name: torch.tensor(array) for name, array in parameters.items()})
    return policy


def make_optimizer(config: PPOConfig, policy: ActorCritic) -> torch.optim.Adam:
    """Adam; its learning rate is set for every update."""
    return torch.optim.Adam(policy.parameters(), lr=config.lr, eps=config.adam_eps)


def advantages(rollout: Rollout, config: PPOConfig) -> Float[Tensor, "steps envs"]:
    """Generalised advantage estimates of every step, by the values that the critic gave when it acted."""
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


def weights(advantage: Float[Tensor, " n"], config: PPOConfig) -> Float[Tensor, " n"]:
    """(A - mean A) / (std A + 1e-8) over a minibatch, with the biased deviation; A itself if so configured."""
    if not config.normalize_advantages:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)


def update(policy: ActorCritic, optimizer: torch.optim.Adam, batch: Minibatch, config: PPOConfig) -> Info:
    """One step down the loss of a minibatch, in place."""
    value, info = loss(policy, batch, config)
    optimizer.zero_grad()
    value.backward()
    if config.clip_norm is not None:
        torch.nn.utils.clip_grad_norm_(policy.parameters(), config.clip_norm)
    optimizer.step()
    return {name: quantity.detach() for name, quantity in info.items()}


def update_epochs(
    step: Callable[[Minibatch], Mapping[str, Any]],
    rows: Callable[[Int[Tensor, " size"]], Minibatch],
    order: Int[Tensor, "epochs n"],
    config: PPOConfig,
) -> dict[str, float]:
    """`step` on every minibatch of every epoch, until the policy has moved too far; the means of what it logs."""
    infos: list[Mapping[str, Any]] = []
    for index in order.reshape(len(order) * config.minibatches, -1):
        if infos and config.target_kl is not None and float(infos[-1]["approx_kl"]) > config.target_kl:
            break
        batch = rows(index)
        infos.append(step(batch._replace(advantage=weights(batch.advantage, config))))
    means = {name: float(torch.stack([torch.as_tensor(i[name]) for i in infos]).mean()) for name in infos[0]}
    return {**means, "gradient_steps": float(len(infos))}
