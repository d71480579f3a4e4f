"""The terms of contrastive RL, in torch; params.py has the maths. Twin: agent_jax.py."""

import math
from typing import cast

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
    """InfoNCE over the goals of a batch, forward or symmetric; params.py has both."""
    agent, critic = config.agent, cast(GCBilinearValue, modules["critic"])
    states = critic.encode_states(batch.observations, batch.actions)
    logits = critic.products(states, critic.encode_goals(batch.value_goals))
    diagonal, over_goals = logits.diagonal(dim1=1, dim2=2), logits.logsumexp(2)
    if agent.contrastive == "forward":
        value = over_goals - diagonal + agent.penalty * over_goals.square()
    else:
        value = over_goals + logits.logsumexp(1) - 2 * diagonal
    return value.mean(), {"probability": (diagonal - over_goals).exp().mean()}


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
    m = aggregate(critic.products(states, goals).clamp(min=math.log(1e-6)), "min")
    w = m.diagonal() - m.logsumexp(1) + math.log(len(m))
    q = w.exp() * frozen(modules["reward"])(batch.actor_goals)
    return q_loss(q, agent.normalize_q_loss) + agent.alpha * cloning, {"q": q.mean(), **info}
