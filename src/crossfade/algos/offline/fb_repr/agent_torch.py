"""The terms of forward-backward representations, in torch; params.py has the maths. Twin: agent_jax.py."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import Modules, Observations
from ..terms_torch import (
    Info,
    Scalar,
    aggregate,
    awr_loss as weighted_regression,
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
        latents = batch.latent.expand(len(batch.rewards), -1)
        q = modules["critic"](batch.observations, latents, batch.actions)
        return batch._replace(latents=latents, shared={"q": q, "v": modules["value"](batch.observations, latents)})
    chosen = batch.noise["mix"] < config.agent.latent_mix
    normal = chosen if config.has("latent_mix") else ~chosen
    with torch.no_grad():
        represented = _backward(modules["backward_repr"], batch.observations)[batch.noise["order"].long()]
    latents = torch.where(normal[:, None], on_sphere(batch.noise["latent"]), represented)
    backward = _backward(modules["backward_repr"], batch.next_observations)
    return batch._replace(latents=latents, shared={"backward": backward})


def act(
    modules: Modules, observations: Observations, latent: Float[Tensor, " d"] | None, config: OfflineConfig
) -> Float[Tensor, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    assert latent is not None, "an agent of latents is told which"
    return policy_action(modules["actor"](observations, latent.expand(len(observations), -1)), None)


@torch.no_grad()
def infer_latent(
    modules: Modules,
    observations: Observations,
    next_observations: Observations,
    rewards: Float[Tensor, " batch"],
    config: OfflineConfig,
) -> Float[Tensor, " d"]:
    """The latent of a task, from transitions with its rewards; params.py has the formula."""
    return on_sphere((rewards[:, None] * _backward(modules["backward_repr"], observations)).mean(0))


def repr_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean_{e, i} (sum_{j != i} (M_eij - gamma Mbar_ij)^2 / (2 (n - 1)) - M_eii); params.py has M."""
    old = config.spec == "r2025-06"
    with torch.no_grad():
        actions = policy_action(modules["actor"](batch.next_observations, batch.latents), None)
        after = modules["target_forward_repr"](batch.next_observations, batch.latents, actions)
        m_bar = after @ _backward(modules["target_backward_repr"], batch.next_observations).T
        m_bar = aggregate(m_bar, config.agent.aggregation(config.spec))
    forward = modules["forward_repr"](batch.observations, batch.latents, batch.actions)
    m = forward @ batch.shared["backward"].T
    diagonal = m.diagonal(dim1=1, dim2=2).mean()
    off_diagonal = _beside_diagonal((m - config.gamma * m_bar).square()).mean()
    value = off_diagonal + diagonal if old else 0.5 * off_diagonal - diagonal
    return value, {"diagonal": diagonal, "off_diagonal": off_diagonal}


def ortho_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """orthonormal mean_i (-2 C_ii + sum_{j != i} C_ij^2 / (n - 1)), C = B^(s') B^(s')^T."""
    c = batch.shared["backward"] @ batch.shared["backward"].T
    return config.agent.orthonormal * (_beside_diagonal(c.square()) - 2 * c.diagonal()).mean(), {}


def fb_actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-lambda mean q - alpha_repr mean log pi(a | s, z); params.py has q."""
    agent, old = config.agent, config.spec == "r2025-06"
    distribution = modules["actor"](batch.observations, batch.latents)
    cloning, info = clone_loss(distribution, batch.actions)
    forward = modules["forward_repr"] if old else frozen(modules["forward_repr"])
    f = forward(batch.observations, batch.latents, policy_action(distribution, None))
    q = aggregate(f @ batch.latents.T if old else (f * batch.latents).sum(-1), "min")
    return q_loss(q, agent.normalize_q_loss) + agent.alpha_repr * cloning, {"q": q.mean(), **info}


def value_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's value loss, given the latent."""
    with torch.no_grad():
        q = aggregate(modules["target_critic"](batch.observations, batch.latents, batch.actions), "min")
    v = batch.shared["v"]
    return iql_value_loss(q, v, config.agent.expectile), {"v": v.mean()}


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's critic loss, given the latent."""
    with torch.no_grad():
        y = batch.rewards + config.gamma * batch.masks * modules["value"](batch.next_observations, batch.latents)
    q = batch.shared["q"]
    return iql_critic_loss(q, y), {"q": q.mean()}


def awr_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's actor loss (awr), given the latent."""
    distribution = modules["actor"](batch.observations, batch.latents)
    advantage = aggregate(batch.shared["q"].detach(), "min") - batch.shared["v"].detach()
    value = weighted_regression(advantage, distribution.log_prob(batch.actions), config.agent.alpha_awr)
    return value, {"advantage": advantage.mean(), **clone_loss(distribution, batch.actions)[1]}


def _backward(module: nn.Module, observations: Observations) -> Float[Tensor, "batch d"]:
    """B^."""
    return on_sphere(module(observations))


def _beside_diagonal(x: Float[Tensor, "*members n n"]) -> Float[Tensor, "*members n"]:
    """sum_{j != i} x_ij / (n - 1)."""
    return x.masked_fill(_eye(x), 0).sum(-1) / (x.shape[-1] - 1)


def _eye(x: Float[Tensor, "*members n n"]) -> Bool[Tensor, "n n"]:
    return torch.eye(x.shape[-1], dtype=torch.bool, device=x.device)
