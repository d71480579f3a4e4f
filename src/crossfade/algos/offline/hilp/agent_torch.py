"""HILP's terms, in torch; params.py has the maths. Twin: agent_jax.py."""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import GCMetricValue, Modules, Observations
from ..terms_torch import (
    Info,
    Scalar,
    aggregate,
    awr_loss,
    clone_loss,
    expectile_loss,
    iql_critic_loss,
    iql_value_loss,
    on_sphere,
    policy_action,
)


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch with the latents z of its rows, Q(s, z, a) and V(s, z), in pre-training the rewards of directions."""
    if batch.phase == "finetuning":
        batch = batch._replace(latents=batch.latent.expand(len(batch.rewards), -1))
    else:
        latents = on_sphere(batch.noise["latent"])
        with torch.no_grad():
            directions = _directions(modules, batch.observations, batch.next_observations, config)
        batch = batch._replace(latents=latents, rewards=(directions * latents).sum(-1))
    q = modules["skill_critic"](batch.observations, batch.latents, batch.actions)
    return batch._replace(shared={"q": q, "v": modules["skill_value"](batch.observations, batch.latents)})


def act(
    modules: Modules, observations: Observations, latent: Float[Tensor, " d"] | None, config: OfflineConfig
) -> Float[Tensor, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    assert latent is not None, "an agent of latents is told which"
    return policy_action(modules["skill_actor"](observations, latent.expand(len(observations), -1)), None)


@torch.no_grad()
def infer_latent(
    modules: Modules,
    observations: Observations,
    next_observations: Observations,
    rewards: Float[Tensor, " batch"],
    config: OfflineConfig,
) -> Float[Tensor, " d"]:
    """The latent of a task, from transitions with its rewards; params.py has the formula."""
    directions = _directions(modules, observations, next_observations, config)
    rcond = torch.finfo(directions.dtype).eps * max(directions.shape)
    # on the CPU, where there is a driver that copes with directions that do not span the space
    fit = torch.linalg.lstsq(directions.cpu(), rewards.cpu()[:, None], rcond=rcond, driver="gelsd")
    return on_sphere(fit.solution[:, 0].to(directions.device))


def metric_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """sum_e mean L_k(adv, q_e - V_e(s, g)); params.py has adv and q."""
    value, target = cast(GCMetricValue, modules["value"]), cast(GCMetricValue, modules["target_value"])
    with torch.no_grad():
        three = torch.cat((batch.observations, batch.next_observations, batch.value_goals))
        states, next_states, goals = target.encode(three).chunk(3, 1)
        after = target.distance(next_states, goals)
        q = batch.relabeled_rewards + config.gamma * batch.relabeled_masks * after
        best = batch.relabeled_rewards + config.gamma * batch.relabeled_masks * aggregate(after, "min")
        advantage = best - aggregate(target.distance(states, goals), "mean")
    v = value.distance(*value.encode(torch.cat((batch.observations, batch.value_goals))).chunk(2, 1))
    return expectile_loss(advantage.expand_as(v), q - v, config.agent.expectile).mean(1).sum(), {"v": v.mean()}


def skill_value_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's value loss, given the latent."""
    with torch.no_grad():
        q = aggregate(modules["target_skill_critic"](batch.observations, batch.latents, batch.actions), "min")
    v = batch.shared["v"]
    return iql_value_loss(q, v, config.agent.expectile), {"v": v.mean()}


def skill_critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's critic loss, given the latent."""
    with torch.no_grad():
        y = batch.rewards + config.gamma * batch.masks * modules["skill_value"](batch.next_observations, batch.latents)
    q = batch.shared["q"]
    return iql_critic_loss(q, y), {"q": q.mean()}


def skill_actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """IQL's actor loss (awr), given the latent."""
    distribution = modules["skill_actor"](batch.observations, batch.latents)
    advantage = aggregate(batch.shared["q"].detach(), "min") - batch.shared["v"].detach()
    value = awr_loss(advantage, distribution.log_prob(batch.actions), config.agent.alpha)
    return value, {"advantage": advantage.mean(), **clone_loss(distribution, batch.actions)[1]}


def _directions(
    modules: Modules, observations: Observations, next_observations: Observations, config: OfflineConfig
) -> Float[Tensor, "batch d"]:
    """phi(s') - phi(s) by the first member, or as the mean over members."""
    phi = cast(GCMetricValue, modules["value"]).encode(torch.cat((observations, next_observations)))
    before, after = (phi[0] if config.has("first_member") else phi.mean(0)).chunk(2)
    return after - before
