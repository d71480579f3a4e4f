"""ReBRAC's terms, in JAX; params.py has the maths. Twin: agent_torch.py."""

import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_jax import Modules
from ..terms_jax import Info, Scalar, aggregate, clone_loss, frozen, policy_action, q_loss


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | s)."""
    return clone_loss(modules["actor"](batch.observations), batch.actions)


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean_{e, b} (Q_e(s, a) - y)^2 with y of the target networks; params.py has it."""
    agent = config.agent
    noise = jnp.clip(agent.actor_noise * batch.noise["target_action"], -agent.noise_clip, agent.noise_clip)
    next_actions = jnp.clip(modules["target_actor"](batch.next_observations).mode() + noise, -1, 1)
    next_q = aggregate(modules["target_critic"](batch.next_observations, next_actions), "min")
    penalty = jnp.square(next_actions - batch.next_actions).sum(-1)
    y = stop_gradient(batch.rewards + config.gamma * batch.masks * (next_q - agent.alpha_critic * penalty))
    q = modules["critic"](batch.observations, batch.actions)
    return jnp.square(q - jnp.broadcast_to(y, q.shape)).mean(), {"q": q.mean()}


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-lambda mean min_e Q_e(s, a_pi) + alpha_actor mean |a_pi - a|^2."""
    actions = modules["actor"](batch.observations).mode()
    q = aggregate(frozen(modules["critic"])(batch.observations, actions), "min")
    error = jnp.square(actions - batch.actions)
    value = q_loss(q, config.agent.normalize_q_loss) + config.agent.alpha_actor * error.sum(-1).mean()
    return value, {"q": q.mean(), "mse": error.mean()}


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)
