"""The learner of IQN: optimisers, one update; in JAX. Twin: learner_torch.py. stacked_jax.py trains the models."""

import jax
import optax
from jaxtyping import PyTree

from ...nn.layers_jax import name
from ...optim.masking_jax import only
from .batch import Batch
from .config import IQNConfig
from .losses_jax import Info
from .networks_jax import Policy
from .optimizer import names, rates
from .stacked_jax import clipped_adam, stack, unstack, update_stacked


def make_optimizers(config: IQNConfig, policy: Policy) -> dict[str, optax.GradientTransformation]:
    """Adam for the local network of each model, by name; every update clips the gradient to `config.clip_norm`."""
    found = [name(path) for path, _ in jax.tree_util.tree_leaves_with_path(policy)]
    local = lambda number: [one for one in found if one.startswith(f"models.{number}.local.")]
    return {
        own: only(clipped_adam(config, rate), local(number))
        for number, (own, rate) in enumerate(zip(names(config), rates(config), strict=True))
    }


def update(
    policy: Policy,
    optimizers: dict[str, optax.GradientTransformation],
    opt_states: dict[str, PyTree],
    batch: Batch,
    config: IQNConfig,
) -> tuple[Policy, dict[str, PyTree], Info]:
    """One gradient step of every model, and the means over the models of what to log.

    Target networks are copied first if the batch says so, ready or not, and follow after the step if they are soft. A
    batch that is not ready teaches nothing: then all that is told is 0, also `learned`.
    """
    # `optimizers` own the states; the step is that of `config`, for all models at once.
    stacked, info = update_stacked(stack(policy, opt_states, config), batch, config)
    return *unstack(stacked, policy, opt_states), info
