"""InFOM's terms, in torch; params.py has the maths. Twin: agent_jax.py."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import Modules, Observations
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
    states, target = _codes(modules, "critic_vf_encoder", batch.observations), modules["target_critic_vf"]
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
        each = lambda part: part.expand(agent.flow_goals, *part.shape[-2:])
        given = each(states), each(batch.actions), each(z)
        goals = _euler(modules["critic_vf"], batch.noise["goals"], *given, batch, config)
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
    field: nn.Module,
    x: Float[Tensor, "*n code"],
    states: Float[Tensor, "*n code"],
    actions: Float[Tensor, "*n action"],
    latents: Float[Tensor, "*n d"],
    batch: Batch,
    config: OfflineConfig,
) -> Float[Tensor, "*n code"]:
    """The flow from x at time 0 to time 1. Bounds are those of observations: codes have none."""
    steps = config.agent.flow_steps
    clipped = config.agent.clip_flow_goals and config.encoding is None
    for i in range(steps):
        t = torch.full(x.shape[:-1], i / steps, dtype=x.dtype, device=x.device)
        x = x + field(x, t, states, actions, latents) / steps
        x = x.clamp(batch.bounds[0] + 1e-5, batch.bounds[1] - 1e-5) if clipped else x
    return x
