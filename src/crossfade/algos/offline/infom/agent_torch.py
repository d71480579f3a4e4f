"""InFOM's terms, in torch; params.py has the maths. Twin: agent_jax.py."""

from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import Modules, Observations, VectorField
from ..terms_torch import Info, Scalar, aggregate, clone_loss, expectile_loss, frozen, policy_action, q_loss


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """The batch as it is."""
    return batch


def act(
    modules: Modules, observations: Observations, latent: Float[Tensor, " d"] | None, config: OfflineConfig
) -> Float[Tensor, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](observations), None)


def flow_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """The flow-matching loss and kl_weight KL; params.py has both."""
    agent, noise, old = config.agent, batch.noise, config.spec == "r2025-06"
    mean, log_std = modules["intention_encoder"](batch.next_observations, batch.next_actions)
    z = mean + log_std.exp() * noise["latent"]
    log_variance = log_std if old else 2 * log_std
    kl = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean()

    t, start, later_start = noise["time"][:, None], noise["current"], noise["current" if old else "future"]
    states = _codes(modules, "critic_vf_encoder", batch.observations)
    target = cast(VectorField, modules["target_critic_vf"])
    with torch.no_grad():
        given = _codes(modules, "target_critic_vf_encoder", batch.next_observations), batch.next_actions, z.detach()
        later = t * _euler(target, later_start, *given, batch, config) + (1 - t) * later_start
        later_velocity = target(later, noise["time"], *given)
    velocity, later_found = modules["critic_vf"](
        torch.cat((t * states + (1 - t) * start, later)),
        torch.cat((noise["time"], noise["time"])),
        torch.cat((states.detach(), states.detach())),
        torch.cat((batch.actions, batch.actions)),
        torch.cat((z, z.detach())),
    ).chunk(2)
    current = (states.detach() - start - velocity).square().mean()
    future = (later_velocity - later_found).square().mean()
    value = (1 - config.gamma) * current + config.gamma * future + agent.kl_weight * kl
    return value, {"kl": kl, "current": current, "future": future}


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | s)."""
    return clone_loss(modules["actor"](batch.observations), batch.actions)


def reward_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean (R(s) - r)^2."""
    with torch.no_grad():
        states = _codes(modules, "critic_vf_encoder", batch.observations)
    return (modules["reward"](states) - batch.rewards).square().mean(), {}


def critic_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """mean L_k(y - Q, y - Q) with y the mean reward of states that the flow samples; params.py has it."""
    agent, z = config.agent, batch.noise["critic_latent"]
    with torch.no_grad():
        if agent.critic_latents == "encoding":
            mean, log_std = modules["intention_encoder"](batch.next_observations, batch.next_actions)
            z = mean + log_std.exp() * z
        states = _codes(modules, "critic_vf_encoder", batch.observations)
        field = cast(VectorField, modules["critic_vf"])
        goals = _euler(field, batch.noise["goals"], states, batch.actions, z, batch, config)
        y = modules["reward"](goals).mean(0) / (1 - config.gamma)
    q = modules["critic"](batch.observations, batch.actions)
    return expectile_loss(y - q, y - q, agent.expectile).mean(), {"q": q.mean()}


def actor_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-lambda mean q - alpha mean log pi(a | s), q = agg_e Q_e(s, pi(s))."""
    agent, distribution = config.agent, modules["actor"](batch.observations)
    cloning, info = clone_loss(distribution, batch.actions)
    actions = policy_action(distribution, batch.noise.get("action"))
    q = aggregate(frozen(modules["critic"])(batch.observations, actions), agent.q_agg)
    return q_loss(q, agent.normalize_q_loss) + agent.alpha * cloning, {"q": q.mean(), **info}


def _codes(modules: Modules, coder: str, observations: Observations) -> Float[Tensor, "batch code"]:
    """Where the field lives: codes of observations, or observations themselves."""
    return modules[coder](observations) if coder in modules else observations


def _euler(
    field: VectorField,
    x: Float[Tensor, "*n code"],
    states: Float[Tensor, "batch code"],
    actions: Float[Tensor, "batch action"],
    latents: Float[Tensor, "*m d"],
    batch: Batch,
    config: OfflineConfig,
) -> Float[Tensor, "*n code"]:
    """The flow from x at time 0 to time 1. Bounds are those of observations: codes have none.

    The first layer is linear: what it makes of states, actions and latents is the same at all times, and computed once.
    """
    net, steps = field.vector_field_net, config.agent.flow_steps
    sizes = x.shape[-1], 1, states.shape[-1] + actions.shape[-1], latents.shape[-1]
    of_x, of_time, of_pairs, of_latents = net.layers[0].weight.split(sizes, 1)
    given = F.linear(torch.cat((states, actions), -1), of_pairs, net.layers[0].bias) + F.linear(latents, of_latents)
    clipped = config.agent.clip_flow_goals and config.encoding is None
    for i in range(steps):
        x = x + net._behind_first([F.linear(x, of_x) + (given + i / steps * of_time[:, 0])]) / steps
        x = x.clamp(batch.bounds[0] + 1e-5, batch.bounds[1] - 1e-5) if clipped else x
    return x
