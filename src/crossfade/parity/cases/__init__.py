"""Small systems written twice, for the command line, the demo and the tests. Each function makes a fresh twin."""

from collections.abc import Callable

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

    def batch(i: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng((seed, i))
        return {
            "obs": rng.standard_normal((16, 4), np.float32),
            "action": rng.standard_normal((16, 2), np.float32),
            "log_prob": rng.standard_normal(16, np.float32) / 4 - 2,
            "advantage": rng.standard_normal(16, np.float32),
            "value_target": rng.standard_normal(16, np.float32),
        }

    torch.manual_seed(seed)
    return Twin(
        "policy_value",
        torch=policy_value_torch.PolicyValue(),
        jax=policy_value_jax.PolicyValue(key=jax.random.key(seed)),
        batches=batch,
        example=batch(0)["obs"],
        loss=(policy_value_torch.ppo_loss, policy_value_jax.ppo_loss),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=3e-4, eps=1e-5),
        clip_norm=0.5,
    )


def critics(seed: int = 0) -> Twin:
    """TD learning of an ensemble of critics: a list of modules in torch, one vmapped module in JAX; slow targets."""
    import jax
    import torch

    from . import critics_jax, critics_torch

    def batch(i: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng((seed, i))
        return {
            "obs": rng.standard_normal((16, 3), np.float32),
            "action": rng.standard_normal((16, 2), np.float32),
            "reward": rng.standard_normal(16, np.float32),
            "terminal": (rng.random(16) < 0.25).astype(np.float32),
            "next_obs": rng.standard_normal((16, 3), np.float32),
            "next_action": rng.standard_normal((16, 2), np.float32),
        }

    torch.manual_seed(seed)
    return Twin(
        "critics",
        torch=critics_torch.Critics(),
        jax=critics_jax.Critics(key=jax.random.key(seed)),
        batches=batch,
        example=(batch(0)["obs"], batch(0)["action"]),
        loss=(critics_torch.td_loss, critics_jax.td_loss),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=3e-4),
        update=(critics_torch.update, critics_jax.update),
    )
