"""The terms of TD-InfoNCE, in JAX; params.py has the maths. Twin: agent_torch.py."""

import math

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_jax import Modules
from ..terms_jax import Info, Scalar, aggregate, clone_loss, frozen, policy_action, q_loss


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def contrastive_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean ((1 - gamma) L1 + gamma L2); params.py has both."""
    critic, target, n = modules["critic"], frozen(modules["target_critic"]), len(batch.actions)
    states = critic.encode_states(batch.observations, batch.actions)
    goals = critic.encode_goals(jnp.concatenate([batch.next_observations, batch.value_goals]))
    next_states, goals = jnp.split(goals, 2, 1)
    later = critic.products(states, goals)
    now = (states * next_states).sum(-1) / math.sqrt(states.shape[-1])  # of N the diagonal alone is needed
    own = jnp.broadcast_to(jnp.eye(n, dtype=bool), later.shape)
    logits = jnp.where(own, jnp.broadcast_to(now[..., None], later.shape), later)
    first = logsumexp(logits, axis=2) - now
    there = target.encode_states(batch.next_observations, _next_actions(modules, batch))
    targets = aggregate(
        target.products(there, target.encode_goals(batch.value_goals)), config.agent.aggregation(config.spec)
    )
    weights = stop_gradient(jax.nn.softmax(targets, axis=1))
    second = -(jnp.broadcast_to(weights, later.shape) * jax.nn.log_softmax(later, axis=2)).sum(2)
    value = ((1 - config.gamma) * first + config.gamma * second).mean()
    return value, {"probability": jnp.exp(-first).mean()}


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
    m = aggregate(critic.products(states, goals), config.agent.aggregation(config.spec))
    weights = jnp.exp(jnp.diagonal(m) - logsumexp(m, axis=1) + math.log(len(m)))
    q = weights * stop_gradient(modules["reward"](batch.actor_goals))
    return q_loss(q, config.agent.normalize_q_loss) + config.agent.alpha * cloning, {"q": q.mean(), **told}


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)


def _next_actions(modules: Modules, batch: Batch) -> Float[Array, "batch action"]:
    """The data's in pre-training, the policy's in fine-tuning."""
    if batch.phase == "pretraining":
        return batch.next_actions
    noise = (batch.noise or {}).get("next_action")
    return stop_gradient(policy_action(modules["actor"](batch.next_observations), noise))
