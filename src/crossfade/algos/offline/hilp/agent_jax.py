"""HILP's terms, in JAX; params.py has the maths. Twin: agent_torch.py."""

import jax.numpy as jnp
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
    expectile_loss,
    frozen,
    iql_critic_loss,
    iql_value_loss,
    on_sphere,
    policy_action,
)


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch with the latents z of its rows, Q(s, z, a) and V(s, z), in pre-training the rewards of directions."""
    if batch.phase == "finetuning":
        batch = batch._replace(latents=jnp.broadcast_to(batch.latent, (len(batch.actions), len(batch.latent))))
    else:
        latents = on_sphere(batch.noise["latent"])
        moves = _moves(modules, batch.observations, batch.next_observations, config)
        batch = batch._replace(latents=latents, rewards=(moves * latents).sum(-1))
    q = modules["skill_critic"](batch.observations, batch.latents, batch.actions)
    return batch._replace(shared={"q": q, "v": modules["skill_value"](batch.observations, batch.latents)})


def metric_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """sum_e mean L_k(adv, q_e - V_e(s, g)); params.py has adv and q."""
    target, value, goals = frozen(modules["target_value"]), modules["value"], batch.value_goals
    states = jnp.concatenate([batch.observations, batch.next_observations, goals])
    there, next_there, goals_there = jnp.split(target.encode(states), 3, 1)
    next_v, v_there = target.distance(next_there, goals_there), target.distance(there, goals_there)
    v = value.distance(value.encode(batch.observations), value.encode(goals))
    rewards, discounts = batch.relabeled_rewards, config.gamma * batch.relabeled_masks
    advantage = rewards + discounts * aggregate(next_v, "min") - aggregate(v_there, "mean")
    spread = lambda rows: jnp.broadcast_to(rows, v.shape)
    q = spread(rewards) + spread(discounts) * next_v
    value_of = expectile_loss(spread(advantage), q - v, config.agent.expectile)
    return value_of.mean(1).sum(), {"v": v.mean()}


def skill_value_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's value loss, given the latent."""
    q = aggregate(modules["target_skill_critic"](batch.observations, batch.latents, batch.actions), "min")
    v = batch.shared["v"]
    return iql_value_loss(q, v, config.agent.expectile), {"v": v.mean()}


def skill_critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's critic loss, given the latent."""
    q = batch.shared["q"]
    next_v = modules["skill_value"](batch.next_observations, batch.latents)
    return iql_critic_loss(q, batch.rewards + config.gamma * batch.masks * next_v), {"q": q.mean()}


def skill_actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's actor loss (awr), given the latent."""
    distribution = modules["skill_actor"](batch.observations, batch.latents)
    advantage = stop_gradient(aggregate(batch.shared["q"], "min") - batch.shared["v"])
    value = awr_loss(advantage, distribution.log_prob(batch.actions), config.agent.alpha)
    return value, {"advantage": advantage.mean(), **clone_loss(distribution, batch.actions)[1]}


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    assert latent is not None, "a task is a latent"
    latents = jnp.broadcast_to(latent, (len(observations), len(latent)))
    return policy_action(modules["skill_actor"](observations, latents), None)


def infer_latent(
    modules: Modules,
    observations: Array,
    next_observations: Array,
    rewards: Float[Array, " n"],
    config: OfflineConfig,
) -> Float[Array, " d"]:
    """The latent of a task, from transitions with its rewards; params.py has the formula."""
    moves = _moves(modules, observations, next_observations, config)
    eps = float(jnp.finfo(moves.dtype).eps)
    return on_sphere(jnp.linalg.lstsq(moves, rewards.astype(moves.dtype), rcond=eps * max(moves.shape))[0])


def _moves(
    modules: Modules, observations: Array, next_observations: Array, config: OfflineConfig
) -> Float[Array, "batch d"]:
    """phi(s') - phi(s), a constant: of the first member, or the mean over members."""
    encode = modules["value"].encode
    moves = stop_gradient(encode(next_observations) - encode(observations))
    return moves[0] if config.has("first_member") else moves.mean(0)
