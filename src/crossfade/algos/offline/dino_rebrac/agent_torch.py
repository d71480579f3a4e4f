"""DINO's terms, in torch; params.py has the maths. Twin: agent_jax.py."""

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_torch import Modules, Observations
from ..rebrac.agent_torch import actor_loss as actor_loss, critic_loss as critic_loss
from ..terms_torch import Info, Scalar, clone_loss, policy_action


@torch.no_grad()
def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """In fine-tuning, the batch with codes for observations; they are constants."""
    if batch.phase == "pretraining":
        return batch
    states, next_states = modules["encoder"](batch.observations), modules["target_encoder"](batch.next_observations)
    return batch._replace(observations=states, next_observations=next_states)


def act(
    modules: Modules, observations: Observations, latent: Float[Tensor, " d"] | None, config: OfflineConfig
) -> Float[Tensor, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](modules["encoder"](observations)), None)


@torch.no_grad()
def moved(modules: Modules, batch: Batch, config: OfflineConfig) -> dict[str, Tensor]:
    """The centre after an update of pre-training, unless it is constant."""
    if batch.phase == "finetuning" or config.has("constant_center"):
        return {}
    rate, codes = config.agent.center_rate, modules["target_encoder"](_views(batch, config))
    return {"target_repr_center.array": (1 - rate) * modules["target_repr_center"]() + rate * codes.mean(0)}


def repr_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean sum_k softmax((ebar(x) - c) / t') log softmax(e(x) / t) over both views."""
    agent, views = config.agent, _views(batch, config)
    with torch.no_grad():
        codes = modules["target_encoder"](views) - modules["target_repr_center"]()
        teacher = (codes / agent.target_temperature).softmax(-1)
    student = (modules["encoder"](views) / agent.temperature).log_softmax(-1)
    return -(teacher * student).sum(-1).mean(), {}


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | e(s)), with the code a constant."""
    with torch.no_grad():
        states = modules["encoder"](batch.observations)
    return clone_loss(modules["actor"](states), batch.actions)


def _views(batch: Batch, config: OfflineConfig) -> Shaped[Tensor, "two_batches ..."]:
    """Both views, one below the other."""
    if batch.views is not None:
        return batch.views.flatten(0, 1)
    agent, noise = config.agent, batch.noise["views"]
    return (batch.observations + (agent.view_noise * noise).clamp(-agent.view_clip, agent.view_clip)).flatten(0, 1)
