"""IQL's terms, in torch; params.py has the maths. Twin: agent_jax.py."""

import torch
from jaxtyping import Float
from torch import Tensor

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import Modules, Observations
from ..terms_torch import (
    Info,
    Scalar,
    aggregate,
    awr_loss,
    clone_loss,
    frozen,
    iql_critic_loss,
    iql_value_loss,
    policy_action,
    q_loss,
)


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch with Q(s, a) and V(s), in fine-tuning."""
    if batch.phase == "pretraining":
        return batch
    q, v = modules["critic"](batch.observations, batch.actions), modules["value"](batch.observations)
    return batch._replace(shared={"q": q, "v": v})


def act(
    modules: Modules, observations: Observations, latent: Float[Tensor, " d"] | None, config: OfflineConfig
) -> Float[Tensor, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | s)."""
    return clone_loss(modules["actor"](batch.observations), batch.actions)


def value_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean L_k(q - V(s), q - V(s)), q = min_e Qbar_e(s, a)."""
    with torch.no_grad():
        q = aggregate(modules["target_critic"](batch.observations, batch.actions), "min")
    v = batch.shared["v"]
    return iql_value_loss(q, v, config.agent.expectile), {"v": v.mean()}


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean sum_e (Q_e(s, a) - y)^2, y = r + gamma m V(s')."""
    with torch.no_grad():
        y = batch.rewards + config.gamma * batch.masks * modules["value"](batch.next_observations)
    q = batch.shared["q"]
    return iql_critic_loss(q, y), {"q": q.mean()}


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """Advantage-weighted regression, or the critic's gradient with cloning; params.py has both."""
    agent, distribution = config.agent, modules["actor"](batch.observations)
    cloning, info = clone_loss(distribution, batch.actions)
    if agent.actor_loss == "awr":
        advantage = aggregate(batch.shared["q"].detach(), "min") - batch.shared["v"].detach()
        value = awr_loss(advantage, distribution.log_prob(batch.actions), agent.alpha)
        return value, {"advantage": advantage.mean(), **info}
    actions = policy_action(distribution, (batch.noise or {}).get("action"))
    q = aggregate(frozen(modules["critic"])(batch.observations, actions), "min")
    return q_loss(q, normalize=True) + agent.alpha * cloning, {"q": q.mean(), **info}
