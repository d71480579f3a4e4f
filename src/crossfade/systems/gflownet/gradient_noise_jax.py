"""How noisy and how biased the sampled gradient of a loss is, against the exact one: an instrument for research.

for loss in ("tb", "vargrad", "db", "subtb"):
    print(loss, gradient_noise(GFlowNetConfig(env=HypergridParams(2, 8), loss=loss)))
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from ...algos.gflownet import losses_jax, training_jax
from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.policy_jax import Policy
from ...algos.gflownet.sampling import noise_jax, rollout_jax
from ...algos.gflownet.sampling.nodes_jax import at_table
from ...errors import UsageError
from .discrete_jax import System

Gradient = Float[Array, " parameters"]


class GradientNoise(NamedTuple):
    """Noise of the gradient of one batch; all fields but the first are relative to the norm of the exact gradient."""

    norm: float
    """The norm of the exact gradient."""
    noise: float
    """Square root of the summed variances of its entries: above 1 a single batch mostly points elsewhere."""
    bias: float
    """Norm of the difference between its mean and the exact gradient."""
    bias_error: float
    """What `bias` would be, about, of a gradient without bias: the mean is over so many batches only."""


def gradient_noise(
    config: GFlowNetConfig, batches: int = 256, parameters: Mapping[str, np.ndarray] | None = None
) -> GradientNoise:
    """Measures `batches` gradients of `config.batch_size` trajectories, at given parameters or where a run starts.

    The exact gradient is the expectation of the sampled one in the limit of large batches; with
    `config.through_sampling` it is the gradient of the expected loss, of which sampling gives a part.
    """
    if config.replay_batch or config.data_batch:
        raise UsageError("gradient_noise measures what the policy samples: leave replay_batch and data_batch at 0.")
    with jax.enable_x64(config.dtype == "float64"):
        system = System(replace(config, objective="sampled", execution="table"))
        policy = system.make_policy(dict(parameters or system.parameters()))
        env, nodes, expected = system.env, jax.tree.map(jnp.asarray, system.table), training_jax.expected(config)

        def sampled(policy: Policy, key: Array) -> Gradient:
            noise = noise_jax.draw(key, env.max_steps, config.batch_size, env.n_actions, config.dtype)
            logits = policy.forward_logits(nodes.observation)
            trajectories = rollout_jax.sample_table(logits, env, noise, config.epsilon, config.temperature)
            batch = at_table(trajectories, env, nodes)
            return ravel_pytree(jax.grad(losses_jax.loss, has_aux=True)(policy, batch, config)[0])[0]

        @jax.jit
        def measure(policy: Policy, keys: Array) -> tuple[Gradient, Gradient, Gradient]:
            exact = ravel_pytree(jax.grad(expected, has_aux=True)(policy, nodes, config)[0])[0]

            def add(sums: tuple[Gradient, Gradient], key: Array) -> tuple[tuple[Gradient, Gradient], None]:
                off = sampled(policy, key) - exact
                return (sums[0] + off, sums[1] + off**2), None

            (off, square), _ = jax.lax.scan(add, (jnp.zeros_like(exact), jnp.zeros_like(exact)), keys)
            return exact, off / batches, (square - off**2 / batches) / (batches - 1)

        keys = jax.random.split(jax.random.key(config.seed), batches)
        exact, bias, variance = (np.asarray(found, np.float64) for found in measure(policy, keys))
    norm, noise = np.linalg.norm(exact), np.sqrt(variance.sum())
    figures = norm, noise / norm, np.linalg.norm(bias) / norm, noise / np.sqrt(batches) / norm
    return GradientNoise(*map(float, figures))
