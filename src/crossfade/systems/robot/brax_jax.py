"""Robots trained by Brax's PPO instead of ours: the same world, samples, rates and sizes of networks.

What stays Brax's: its loss, in which steps that cut an episode count for nothing and advantages are computed anew in
every minibatch; tanh actions with deviations of the state; a critic that shares nothing with the actor; a rate that
does not fall; one set of command ranges for the whole run; and resets to the state in which a lane began.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float

from ...run.evaluation import Evaluation
from .config import RobotConfig
from .evaluation import RobotEffort, evaluate, walk


def options(config: RobotConfig) -> dict[str, Any]:
    """Brax's names for what a config says."""
    return {
        "num_timesteps": config.steps * config.n_envs * config.n_steps,
        "episode_length": config.env.limit,
        "num_envs": config.n_envs,
        "unroll_length": config.n_steps,
        "batch_size": config.n_envs // config.minibatches,
        "num_minibatches": config.minibatches,
        "num_updates_per_batch": config.epochs,
        "discounting": config.gamma,
        "gae_lambda": config.gae_lambda,
        "clipping_epsilon": config.clip,
        "entropy_cost": config.entropy_coef,
        "vf_loss_coefficient": config.value_coef,
        "learning_rate": config.lr,
        "max_grad_norm": config.clip_norm,
        "normalize_advantage": config.normalize_advantages,
        "normalize_observations": config.normalize_observations,
        "max_devices_per_host": config.devices,
        "seed": config.seed,
        "network_factory": network_factory(config),
    }


def network_factory(config: RobotConfig) -> Callable[..., Any]:
    """Brax's networks, as wide and as deep as ours."""
    networks: Any = import_module("brax.training.agents.ppo.networks")
    linen: Any = import_module("flax.linen")
    sizes = (config.hidden,) * config.layers
    return functools.partial(
        networks.make_ppo_networks,
        policy_hidden_layer_sizes=sizes,
        value_hidden_layer_sizes=sizes,
        activation=getattr(linen, config.activation),
    )


def judge(config: RobotConfig, make_policy: Any, parameters: Any, effort: RobotEffort | None = None) -> Evaluation:
    """The policy's most probable actions, on the episodes by which every policy of robots is judged."""
    jax: Any = import_module("jax")
    act = jax.jit(make_policy(parameters, deterministic=True))
    key = jax.random.key(0)

    def decide(observation: Float[np.ndarray, "envs o"]) -> Float[np.ndarray, "envs n"]:
        return np.asarray(act(observation.astype(np.float32), key)[0])

    return evaluate(config, lambda params, settings, episodes: walk(params, settings, decide, episodes), effort)
