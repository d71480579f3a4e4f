"""The terms of TD-InfoNCE, in torch; params.py has the maths. Twin: agent_jax.py."""

import math
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import GCBilinearValue, Modules, Observations
from ..terms_torch import Info, Scalar, aggregate, clone_loss, frozen, policy_action, q_loss


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def act(
    modules: Modules, observations: Observations, latent: Float[Tensor, " d"] | None, config: OfflineConfig
) -> Float[Tensor, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)


def contrastive_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean ((1 - gamma) L1 + gamma L2); params.py has both."""
    critic = cast(GCBilinearValue, modules["critic"])
    states = critic.encode_states(batch.observations, batch.actions)
    next_states, goals = critic.encode_goals(torch.cat((batch.next_observations, batch.value_goals))).chunk(2, 1)
    r = critic.products(states, goals)
    near = (states * next_states).sum(-1) / math.sqrt(states.shape[-1])  # of N only the diagonal is asked for
    c = torch.where(torch.eye(r.shape[1], dtype=torch.bool, device=r.device), near[:, :, None], r)
    first = c.logsumexp(2) - near
    second = -(_next_weights(modules, batch, config) * r.log_softmax(2)).sum(2)
    value = ((1 - config.gamma) * first + config.gamma * second).mean()
    return value, {"probability": (-first).exp().mean()}


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | s)."""
    return clone_loss(modules["actor"](batch.observations), batch.actions)


def reward_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean (R(s) - r)^2."""
    return (modules["reward"](batch.observations) - batch.rewards).square().mean(), {}


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-lambda mean exp(w) R(h) - alpha mean log pi(a | s); params.py has the weights w."""
    agent, distribution = config.agent, modules["actor"](batch.observations)
    cloning, info = clone_loss(distribution, batch.actions)
    critic = frozen(cast(GCBilinearValue, modules["critic"]))
    actions = policy_action(distribution, (batch.noise or {}).get("action"))
    states, goals = critic.encode_states(batch.observations, actions), critic.encode_goals(batch.actor_goals)
    m = aggregate(critic.products(states, goals), agent.aggregation(config.spec))
    w = m.diagonal() - m.logsumexp(1) + math.log(len(m))
    q = w.exp() * frozen(modules["reward"])(batch.actor_goals)
    return q_loss(q, agent.normalize_q_loss) + agent.alpha * cloning, {"q": q.mean(), **info}


@torch.no_grad()
def _next_weights(modules: Modules, batch: Batch, config: OfflineConfig) -> Float[Tensor, "states goals"]:
    """softmax_j agg_e phibar_e(s'_i, a'_i) . psibar_e(g_j) / sqrt(d)."""
    actions = batch.next_actions
    if batch.phase == "finetuning":
        distribution = modules["actor"](batch.next_observations)
        actions = policy_action(distribution, (batch.noise or {}).get("next_action"))
    logits = modules["target_critic"](batch.next_observations, batch.value_goals, actions)
    return aggregate(logits, config.agent.aggregation(config.spec)).softmax(1)
