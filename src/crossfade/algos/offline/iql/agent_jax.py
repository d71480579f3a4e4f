"""IQL's terms, in JAX; params.py has the maths. Twin: agent_torch.py."""

from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_jax import Modules
from ..terms_jax import (
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


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | s)."""
    return clone_loss(modules["actor"](batch.observations), batch.actions)


def value_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean L_k(q - V(s), q - V(s)), q = min_e Qbar_e(s, a)."""
    q = aggregate(modules["target_critic"](batch.observations, batch.actions), "min")
    v = batch.shared["v"]
    return iql_value_loss(q, v, config.agent.expectile), {"v": v.mean()}


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean sum_e (Q_e(s, a) - y)^2, y = r + gamma m V(s')."""
    q = batch.shared["q"]
    y = batch.rewards + config.gamma * batch.masks * modules["value"](batch.next_observations)
    return iql_critic_loss(q, y), {"q": q.mean()}


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """Advantage-weighted regression, or the critic's gradient with cloning; params.py has both."""
    distribution = modules["actor"](batch.observations)
    cloning, told = clone_loss(distribution, batch.actions)
    if config.agent.actor_loss == "awr":
        advantage = stop_gradient(aggregate(batch.shared["q"], "min") - batch.shared["v"])
        value = awr_loss(advantage, distribution.log_prob(batch.actions), config.agent.alpha)
        return value, {"advantage": advantage.mean(), **told}
    actions = policy_action(distribution, (batch.noise or {}).get("action"))
    q = aggregate(frozen(modules["critic"])(batch.observations, actions), "min")
    return q_loss(q, normalize=True) + config.agent.alpha * cloning, {"q": q.mean(), **told}


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)
