"""The terms of DINO with ReBRAC, in JAX; params.py has the maths. Twin: agent_torch.py."""

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient
from jaxtyping import Array, Float

from ..batch import Batch
from ..config import OfflineConfig
from ..networks_jax import Modules
from ..rebrac.agent_jax import actor_loss as actor_loss, critic_loss as critic_loss
from ..terms_jax import Info, Scalar, clone_loss, policy_action


def prepare(modules: Modules, batch: Batch, config: OfflineConfig) -> Batch:
    """In fine-tuning, the batch with codes for observations; they are constants."""
    if batch.phase == "pretraining":
        return batch
    return batch._replace(
        observations=stop_gradient(modules["encoder"](batch.observations)),
        next_observations=stop_gradient(modules["target_encoder"](batch.next_observations)),
    )


def repr_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean sum_k softmax((ebar(x) - c) / t') log softmax(e(x) / t) over both views."""
    views = _views(batch, config)
    codes, targets = modules["encoder"](views), modules["target_encoder"](views)
    center = jnp.broadcast_to(modules["target_repr_center"](), targets.shape)
    teacher = stop_gradient(jax.nn.softmax((targets - center) / config.agent.target_temperature))
    student = jax.nn.log_softmax(codes / config.agent.temperature)
    return -(teacher * student).sum(-1).mean(), {}


def bc_loss(modules: Modules, batch: Batch, config: OfflineConfig) -> tuple[Scalar, Info]:
    """-mean log pi(a | e(s)), with the code a constant."""
    return clone_loss(modules["actor"](stop_gradient(modules["encoder"](batch.observations))), batch.actions)


def moved(modules: Modules, batch: Batch, config: OfflineConfig) -> dict[str, Float[Array, " code"]]:
    """The centre after an update of pre-training, unless it is constant."""
    if batch.phase == "finetuning" or config.has("constant_center"):
        return {}
    rate, center = config.agent.center_rate, modules["target_repr_center"]()
    codes = modules["target_encoder"](_views(batch, config))
    return {"target_repr_center.array": (1 - rate) * center + rate * codes.mean(0)}


def act(
    modules: Modules, observations: Array, latent: Float[Array, " d"] | None, config: OfflineConfig
) -> Float[Array, "batch action"]:
    """The actions of the policy without noise, clipped to [-1, 1]."""
    return policy_action(modules["actor"](modules["encoder"](observations)), None)


def _views(batch: Batch, config: OfflineConfig) -> Array:
    """Both views of each observation, one behind the other: (2 batch, *observation)."""
    views = batch.views
    if views is None:
        bound = config.agent.view_clip
        noise = jnp.clip(config.agent.view_noise * batch.noise["views"], -bound, bound)
        views = jnp.broadcast_to(batch.observations, noise.shape) + noise
    return views.reshape(-1, *views.shape[2:])
