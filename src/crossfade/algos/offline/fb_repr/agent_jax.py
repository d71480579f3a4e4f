"""The terms of forward-backward representations, in JAX; params.py has the maths. Twin: agent_torch.py."""

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
    awr_loss as awr,
    clone_loss,
    frozen,
    iql_critic_loss,
    iql_value_loss,
    on_sphere,
    policy_action,
    q_loss,
)


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch with the latents z of its rows; in pre-training B^(s'), in fine-tuning Q(s, z, a) and V(s, z)."""
    if batch.phase == "finetuning":
        latents = jnp.broadcast_to(batch.latent, (len(batch.actions), len(batch.latent)))
        q = modules["critic"](batch.observations, latents, batch.actions)
        return batch._replace(latents=latents, shared={"q": q, "v": modules["value"](batch.observations, latents)})
    normal = on_sphere(batch.noise["latent"])
    goals = stop_gradient(on_sphere(modules["backward_repr"](batch.observations)))[batch.noise["order"]]
    chosen = jnp.broadcast_to((batch.noise["mix"] < config.agent.latent_mix)[:, None], normal.shape)
    pair = (normal, goals) if config.has("latent_mix") else (goals, normal)
    backward = on_sphere(modules["backward_repr"](batch.next_observations))
    return batch._replace(latents=jnp.where(chosen, *pair), shared={"backward": backward})


def repr_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean_{e, i} (sum_{j != i} (M_eij - gamma Mbar_ij)^2 / (2 (n - 1)) - M_eii); params.py has M."""
    old, next_s, z = config.spec == "r2025-06", batch.next_observations, batch.latents
    next_actions = policy_action(modules["actor"](next_s, z), None)
    next_f = modules["target_forward_repr"](next_s, z, next_actions)
    next_m = _products(next_f, on_sphere(modules["target_backward_repr"](next_s)))
    next_m = stop_gradient(aggregate(next_m, config.agent.aggregation(config.spec)))
    m = _products(modules["forward_repr"](batch.observations, z, batch.actions), batch.shared["backward"])
    error = jnp.square(m - config.gamma * jnp.broadcast_to(next_m, m.shape))
    off = _off_diagonal_sum(error).mean() / (len(z) - 1)
    diagonal = jnp.diagonal(m, axis1=1, axis2=2).mean()
    return off + diagonal if old else off / 2 - diagonal, {"diagonal": diagonal, "off_diagonal": off}


def ortho_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """orthonormal mean_i (-2 C_ii + sum_{j != i} C_ij^2 / (n - 1)), C = B^(s') B^(s')^T."""
    c = batch.shared["backward"] @ batch.shared["backward"].T
    value = (_off_diagonal_sum(jnp.square(c)) / (len(c) - 1) - 2 * jnp.diagonal(c)).mean()
    return config.agent.orthonormal * value, {}


def fb_actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-lambda mean q - alpha_repr mean log pi(a | s, z); params.py has q."""
    old, s, z = config.spec == "r2025-06", batch.observations, batch.latents
    distribution = modules["actor"](s, z)
    cloning, told = clone_loss(distribution, batch.actions)
    forward = modules["forward_repr"] if old else frozen(modules["forward_repr"])
    f = forward(s, z, policy_action(distribution, None))
    q = aggregate(_products(f, z) if old else (f * jnp.broadcast_to(z, f.shape)).sum(-1), "min")
    value = q_loss(q, config.agent.normalize_q_loss) + config.agent.alpha_repr * cloning
    return value, {"q": q.mean(), **told}


def value_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's value loss, given the latent."""
    q = aggregate(modules["target_critic"](batch.observations, batch.latents, batch.actions), "min")
    v = batch.shared["v"]
    return iql_value_loss(q, v, config.agent.expectile), {"v": v.mean()}


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's critic loss, given the latent."""
    q = batch.shared["q"]
    next_v = modules["value"](batch.next_observations, batch.latents)
    return iql_critic_loss(q, batch.rewards + config.gamma * batch.masks * next_v), {"q": q.mean()}


def awr_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's actor loss (awr), given the latent."""
    distribution = modules["actor"](batch.observations, batch.latents)
    advantage = stop_gradient(aggregate(batch.shared["q"], "min") - batch.shared["v"])
    value = awr(advantage, distribution.log_prob(batch.actions), config.agent.alpha_awr)
    return value, {"advantage": advantage.mean(), **clone_loss(distribution, batch.actions)[1]}


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    assert latent is not None, "a task is a latent"
    latents = jnp.broadcast_to(latent, (len(observations), len(latent)))
    return policy_action(modules["actor"](observations, latents), None)


def infer_latent(
    modules: Modules,
    observations: Array,
    next_observations: Array,
    rewards: Float[Array, " n"],
    config: OfflineConfig,
) -> Float[Array, " d"]:
    """The latent of a task, from transitions with its rewards; params.py has the formula."""
    goals = on_sphere(modules["backward_repr"](observations))
    return on_sphere(rewards.astype(goals.dtype) @ goals / len(goals))


def _products(f: Float[Array, "members i d"], b: Float[Array, "j d"]) -> Float[Array, "members i j"]:
    """f_ei . b_j of all pairs."""
    return jnp.einsum("eid,jd->eij", f, b)


def _off_diagonal_sum(matrix: Float[Array, "*members n n"]) -> Float[Array, "*members n"]:
    """sum_{j != i} of row i."""
    own = jnp.broadcast_to(jnp.eye(matrix.shape[-1], dtype=bool), matrix.shape)
    return jnp.where(own, 0, matrix).sum(-1)
