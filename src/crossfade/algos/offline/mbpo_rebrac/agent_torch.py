"""MBPO's terms, in torch; params.py has the maths. Twin: agent_jax.py."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import Modules, Observations
from ..rebrac import agent_torch as rebrac
from ..rebrac.agent_torch import bc_loss as bc_loss
from ..terms_torch import Info, Scalar, policy_action


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def act(
    modules: Modules, observations: Observations, latent: Float[Tensor, " d"] | None, config: OfflineConfig
) -> Float[Tensor, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)


def transition_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean (T(s, a) - (s' - s))^2."""
    change = modules["transition"](batch.observations, batch.actions)
    return (change - (batch.next_observations - batch.observations)).square().mean(), {}


def reward_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean (R(s) - r)^2."""
    return (modules["reward"](batch.observations) - batch.rewards).square().mean(), {}


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """ReBRAC's critic loss, on imagined transitions if there are such."""
    return rebrac.critic_loss(modules, _learned_from(batch), config)


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """ReBRAC's actor loss, on imagined transitions if there are such."""
    return rebrac.actor_loss(modules, _learned_from(batch), config)


@torch.no_grad()
def imagine(
    modules: Modules,
    observations: Float[Tensor, "n observation"],
    noise: Float[Tensor, "2 steps n action"],
    config: OfflineConfig,
) -> Batch:
    """Transitions of the model from these states, by the policy with noise."""
    agent, standing = config.agent, config.has("standing_rollouts")

    def acted(states: Tensor, noise: Tensor) -> Tensor:
        noise = (agent.actor_noise * noise).clamp(-agent.noise_clip, agent.noise_clip)
        return (modules["actor"](states).mode() + noise).clamp(-1, 1)

    rows, states = [], observations
    for own, following in zip(*noise, strict=True):
        actions = acted(states, own)
        after = states + modules["transition"](states, actions)
        next_actions = actions if standing else acted(after, following)
        rows.append((states, actions, after, modules["reward"](states), next_actions))
        states = observations if standing else after
    states, actions, after, rewards, next_actions = (torch.cat(part) for part in zip(*rows, strict=True))
    next_actions = actions.roll(-1, 0) if standing else next_actions
    return Batch(states, actions, after, rewards, torch.ones_like(rewards), next_actions)


def _learned_from(batch: Batch) -> Batch:
    return batch if batch.imagined is None else batch.imagined._replace(noise=batch.noise)
