"""Small systems written twice, for the command line, the demo and the tests. Each function makes a fresh twin."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..twin import Twin


def cases() -> dict[str, Callable[[], Twin]]:
    """The makers by name."""
    return {"policy_value": policy_value, "critics": critics}


def policy_value(seed: int = 0) -> Twin:
    """PPO on a small policy/value net: LayerNorm, a bare log standard deviation, Adam with clipped gradients."""
    import jax
    import torch

    from . import policy_value_jax, policy_value_torch

    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    batch = {
        "obs": rng.normal(size=(16, 4)),
        "action": rng.normal(size=(16, 2)),
        "log_prob": rng.normal(-2.0, 0.3, size=16),
        "advantage": rng.normal(size=16),
        "value_target": rng.normal(size=16),
    }
    return Twin(
        "policy_value",
        torch=policy_value_torch.PolicyValue(),
        jax=policy_value_jax.PolicyValue(key=jax.random.key(seed)),
        batch=_single(batch),
        example=_single(batch["obs"]),
        loss=(policy_value_torch.ppo_loss, policy_value_jax.ppo_loss),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=3e-4, eps=1e-5),
        clip_norm=0.5,
    )


def critics(seed: int = 0) -> Twin:
    """TD learning of an ensemble of critics: a list of modules in torch, one vmapped module in JAX; slow targets."""
    import jax
    import torch

    from . import critics_jax, critics_torch

    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    batch = {
        "obs": rng.normal(size=(16, 3)),
        "action": rng.normal(size=(16, 2)),
        "reward": rng.normal(size=16),
        "terminal": (rng.uniform(size=16) < 0.25).astype(np.float32),
        "next_obs": rng.normal(size=(16, 3)),
        "next_action": rng.normal(size=(16, 2)),
    }
    return Twin(
        "critics",
        torch=critics_torch.Critics(),
        jax=critics_jax.Critics(key=jax.random.key(seed)),
        batch=_single(batch),
        example=_single((batch["obs"], batch["action"])),
        loss=(critics_torch.td_loss, critics_jax.td_loss),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=3e-4),
        update=(critics_torch.update, critics_jax.update),
    )


def _single(tree: Any) -> Any:
    """Data as it comes from an environment: float32."""
    if isinstance(tree, dict):
        return {name: _single(value) for name, value in tree.items()}
    return tuple(map(_single, tree)) if isinstance(tree, tuple) else tree.astype(np.float32)
