"""The terms of contrastive RL with InfoNCE, in JAX; params.py has the maths. Twin: agent_torch.py."""

import math

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_jax import Modules
from ..terms_jax import Info, Scalar, aggregate, clone_loss, frozen, policy_action, q_loss

_LOG_FLOOR = math.log(1e-6)
"""The logits of the actor's weights are not less."""


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def contrastive_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """InfoNCE over the goals of a batch, forward or symmetric; params.py has both."""
    critic = modules["critic"]
    states, goals = critic.encode_states(batch.observations, batch.actions), critic.encode_goals(batch.value_goals)
    logits = critic.products(states, goals)
    diagonal, total = jnp.diagonal(logits, axis1=1, axis2=2), logsumexp(logits, axis=2)
    value = total - diagonal
    if config.agent.contrastive == "forward":
        value = value + config.agent.penalty * jnp.square(total)
    else:
        value = value + logsumexp(logits, axis=1) - diagonal
    return value.mean(), {"probability": jnp.exp(diagonal - total).mean()}


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | s)."""
    return clone_loss(modules["actor"](batch.observations), batch.actions)


def reward_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean (R(s) - r)^2."""
    return jnp.square(modules["reward"](batch.observations) - batch.rewards).mean(), {}


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-lambda mean exp(w) R(h) - alpha mean log pi(a | s); params.py has the weights w."""
    distribution, critic = modules["actor"](batch.observations), frozen(modules["critic"])
    cloning, told = clone_loss(distribution, batch.actions)
    actions = policy_action(distribution, (batch.noise or {}).get("action"))
    states, goals = critic.encode_states(batch.observations, actions), critic.encode_goals(batch.actor_goals)
    m = aggregate(jnp.maximum(critic.products(states, goals), _LOG_FLOOR), "min")
    weights = jnp.exp(jnp.diagonal(m) - logsumexp(m, axis=1) + math.log(len(m)))
    q = weights * jax.lax.stop_gradient(modules["reward"](batch.actor_goals))
    return q_loss(q, config.agent.normalize_q_loss) + config.agent.alpha * cloning, {"q": q.mean(), **told}


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)
