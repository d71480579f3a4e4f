"""The learner of an offline agent: one Adam, targets; in JAX. Twin: learner_torch.py."""

from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from ...nn.layers_jax import name
from ...optim import masking_jax as masking
from ...optim.ema_jax import ema
from .batch import Batch
from .config import OfflineConfig
from .losses_jax import loss
from .networks_jax import Modules
from .parameters import EPS, online_names
from .terms_jax import Info


def make_optimizer(policy: Modules, config: OfflineConfig) -> optax.GradientTransformation:
    """Adam over all modules but targets."""
    return masking.only(optax.adam(config.lr, eps=EPS), online_names({key: own.spec for key, own in policy.items()}))


def update(
    policy: Modules, tx: optax.GradientTransformation, opt_state: PyTree, batch: Batch, config: OfflineConfig
) -> tuple[Modules, PyTree, Info]:
    """One gradient step of all modules, then targets follow those of before the step. Modules without a gradient get
    one of 0."""
    before = remember(policy, batch, config)
    policy, opt_state, info = masking.update(policy, tx, opt_state, lambda p, b: loss(p, b, config), batch)
    return follow(policy, before, batch, config), opt_state, info


def remember(policy: Modules, batch: Batch, config: OfflineConfig) -> dict[str, Any]:
    """What targets will follow: the modules as they are before an update."""
    agent = import_module(config.agent.jax)
    moved = agent.moved(policy, batch, config) if hasattr(agent, "moved") else {}
    return {key: policy[key] for key in config.agent.followed(batch.phase, config.encoding is not None)} | moved


def follow(policy: Modules, before: dict[str, Any], batch: Batch, config: OfflineConfig) -> Modules:
    """Targets after an update, from the modules as they were before it: (1 - tau) target + tau module; and what an
    agent moves besides."""
    policy = jax.tree_util.tree_map_with_path(lambda path, leaf: before.get(name(path), leaf), policy)
    for key in config.agent.followed(batch.phase, config.encoding is not None):
        target = policy[f"target_{key}"]
        after = ema(target, before[key], config.tau)
        if batch.phase == "finetuning" and config.agent.averages_when_full:
            after = jax.tree.map(lambda new, old: jnp.where(batch.full, new, old), after, target)
        policy = {**policy, f"target_{key}": after}
    return policy


def reset_targets(policy: Modules, config: OfflineConfig) -> Modules:
    """Targets set to their modules, between the phases."""
    reset = config.agent.reset(config.encoding is not None)
    return {**policy, **{f"target_{key}": jax.tree.map(jnp.copy, policy[key]) for key in reset}}
