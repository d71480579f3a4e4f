"""The terms of MBPO with ReBRAC, in JAX; params.py has the maths. Twin: agent_torch.py."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_jax import Modules
from ..rebrac import agent_jax as rebrac
from ..rebrac.agent_jax import bc_loss as bc_loss
from ..terms_jax import Info, Scalar, frozen, policy_action


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def transition_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean (T(s, a) - (s' - s))^2."""
    change = modules["transition"](batch.observations, batch.actions)
    return jnp.square(change - (batch.next_observations - batch.observations)).mean(), {}


def reward_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean (R(s) - r)^2."""
    return jnp.square(modules["reward"](batch.observations) - batch.rewards).mean(), {}


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """ReBRAC's critic loss, on imagined transitions if there are such."""
    return rebrac.critic_loss(modules, _source(batch), config)


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """ReBRAC's actor loss, on imagined transitions if there are such."""
    return rebrac.actor_loss(modules, _source(batch), config)


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)


def imagine(
    modules: Modules,
    observations: Float[Array, "n observation"],
    noise: Float[Array, "2 steps n action"],
    config: OfflineConfig,
) -> Batch:
    """Transitions of the model from these states, by the policy with noise."""
    modules, standing = frozen(modules), config.has("standing_rollouts")

    def step(s: Array, noise: Float[Array, "2 n action"]) -> tuple[Array, Batch]:
        actions = _noisy(modules, s, noise[0], config)
        next_s, rewards = s + modules["transition"](s, actions), modules["reward"](s)
        next_actions = actions if standing else _noisy(modules, next_s, noise[1], config)
        found = Batch(s, actions, next_s, rewards, jnp.ones_like(rewards), next_actions)
        return s if standing else next_s, found

    _, steps = jax.lax.scan(step, observations, jnp.swapaxes(noise, 0, 1))
    rows = jax.tree.map(lambda column: column.reshape(-1, *column.shape[2:]), steps)
    return rows._replace(next_actions=jnp.roll(rows.actions, -1, 0)) if standing else rows


def _noisy(
    modules: Modules,
    observations: Float[Array, "n observation"],
    noise: Float[Array, "n action"],
    config: OfflineConfig,
) -> Float[Array, "n action"]:
    noise = jnp.clip(config.agent.actor_noise * noise, -config.agent.noise_clip, config.agent.noise_clip)
    return jnp.clip(modules["actor"](observations).mode() + noise, -1, 1)


def _source(batch: Batch) -> Batch:
    """What critic and actor learn from."""
    return batch if batch.imagined is None else batch.imagined._replace(noise=batch.noise)
