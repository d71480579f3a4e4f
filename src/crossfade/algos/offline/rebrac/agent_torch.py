"""ReBRAC's terms, in torch; params.py has the maths. Twin: agent_jax.py."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import Modules, Observations
from ..terms_torch import Info, Scalar, aggregate, clone_loss, frozen, policy_action, q_loss


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def act(
    modules: Modules, observations: Observations, latent: Float[Tensor, " d"] | None, config: OfflineConfig
) -> Float[Tensor, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | s)."""
    return clone_loss(modules["actor"](batch.observations), batch.actions)


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean_{e, b} (Q_e(s, a) - y)^2 with y of the target networks; params.py has it."""
    agent = config.agent
    with torch.no_grad():
        noise = (agent.actor_noise * batch.noise["target_action"]).clamp(-agent.noise_clip, agent.noise_clip)
        action = (modules["target_actor"](batch.next_observations).mode() + noise).clamp(-1, 1)
        after = aggregate(modules["target_critic"](batch.next_observations, action), "min")
        after = after - agent.alpha_critic * (action - batch.next_actions).square().sum(-1)
        y = batch.rewards + config.gamma * batch.masks * after
    q = modules["critic"](batch.observations, batch.actions)
    return (q - y).square().mean(), {"q": q.mean()}


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-lambda mean min_e Q_e(s, a_pi) + alpha_actor mean |a_pi - a|^2."""
    agent, action = config.agent, modules["actor"](batch.observations).mode()
    q = aggregate(frozen(modules["critic"])(batch.observations, action), "min")
    error = (action - batch.actions).square()
    value = q_loss(q, agent.normalize_q_loss) + agent.alpha_actor * error.sum(-1).mean()
    return value, {"q": q.mean(), "mse": error.mean()}
