"""InFOM's terms, in JAX; params.py has the maths. Twin: agent_torch.py."""

import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_jax import Modules
from ..terms_jax import Info, Scalar, aggregate, clone_loss, expectile_loss, frozen, policy_action, q_loss
from .flow_jax import conditioned, euler


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def flow_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """The flow-matching loss and kl_weight KL; params.py has both."""
    old, noise, field = config.spec == "r2025-06", batch.noise, modules["critic_vf"]
    mean, log_std = modules["intention_encoder"](batch.next_observations, batch.next_actions)
    z = mean + jnp.exp(log_std) * noise["latent"]
    kl = 1 + log_std - jnp.square(mean) - jnp.exp(log_std)
    if not old:
        kl = 1 + 2 * log_std - jnp.square(mean) - jnp.exp(2 * log_std)
    kl = -kl.mean() / 2

    s, next_s = _code(modules, batch.observations), stop_gradient(_target_code(modules, batch.next_observations))
    t, start = noise["time"], noise["current"]
    along = jnp.broadcast_to(t[:, None], s.shape)
    x = along * s + (1 - along) * start
    velocity = field(x, t, stop_gradient(s), batch.actions, z)
    current = jnp.square(stop_gradient(s - start) - velocity).mean(-1)

    start, z = noise["current" if old else "future"], stop_gradient(z)
    target = conditioned(frozen(modules["target_critic_vf"]), next_s, batch.next_actions, z)
    x = along * euler(target, start, config.agent.flow_steps, _bounds(batch, config)) + (1 - along) * start
    velocity = field(x, t, stop_gradient(s), batch.actions, z)
    future = jnp.square(target.velocity(x, t) - velocity).mean(-1)

    value = ((1 - config.gamma) * current + config.gamma * future).mean() + config.agent.kl_weight * kl
    return value, {"kl": kl, "current": current.mean(), "future": future.mean()}


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | s)."""
    return clone_loss(modules["actor"](batch.observations), batch.actions)


def reward_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean (R(s) - r)^2."""
    rewards = modules["reward"](stop_gradient(_code(modules, batch.observations)))
    return jnp.square(rewards - batch.rewards).mean(), {}


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean L_k(y - Q, y - Q) with y the mean reward of states that the flow samples; params.py has it."""
    agent, noise = config.agent, batch.noise
    s, z = stop_gradient(_code(modules, batch.observations)), noise["critic_latent"]
    if agent.critic_latents == "encoding":
        mean, log_std = frozen(modules["intention_encoder"])(batch.next_observations, batch.next_actions)
        z = jnp.broadcast_to(mean, z.shape) + jnp.broadcast_to(jnp.exp(log_std), z.shape) * z
    spread = lambda part: jnp.broadcast_to(part, (*z.shape[:-1], part.shape[-1]))
    field = conditioned(frozen(modules["critic_vf"]), spread(s), spread(batch.actions), z)
    goals = euler(field, noise["goals"], agent.flow_steps, _bounds(batch, config))
    y = frozen(modules["reward"])(goals).mean(0) / (1 - config.gamma)
    q = modules["critic"](batch.observations, batch.actions)
    difference = jnp.broadcast_to(y, q.shape) - q
    return expectile_loss(difference, difference, agent.expectile).mean(), {"q": q.mean()}


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-lambda mean q - alpha mean log pi(a | s), q = agg_e Q_e(s, pi(s))."""
    distribution = modules["actor"](batch.observations)
    cloning, told = clone_loss(distribution, batch.actions)
    actions = policy_action(distribution, batch.noise.get("action"))
    q = aggregate(frozen(modules["critic"])(batch.observations, actions), config.agent.q_agg)
    return q_loss(q, config.agent.normalize_q_loss) + config.agent.alpha * cloning, {"q": q.mean(), **told}


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)


def _code(modules: Modules, observations: Array) -> Float[Array, "batch code"]:
    """Where the field lives: observations themselves, or their codes."""
    return modules["critic_vf_encoder"](observations) if "critic_vf_encoder" in modules else observations


def _target_code(modules: Modules, observations: Array) -> Float[Array, "batch code"]:
    return modules["target_critic_vf_encoder"](observations) if "critic_vf_encoder" in modules else observations


def _bounds(batch: Batch, config: OfflineConfig) -> Float[Array, "2 observation"] | None:
    """Those of the data; codes have none."""
    return batch.bounds if config.agent.clip_flow_goals and config.encoding is None else None
