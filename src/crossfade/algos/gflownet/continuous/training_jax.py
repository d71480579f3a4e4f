"""Training compiled as a whole: collecting and learning, many iterations in one program, on one device or several."""

from functools import partial

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ....envs.dag.continuous_jax import ContinuousEnv
from ....optim import sharing_jax as sharing
from ....optim.sharing_jax import EVERYWHERE
from .. import shared_learner_jax
from ..config import GFlowNetConfig
from .learner_jax import terms
from .noise_jax import draw
from .policy_jax import Policy
from .rollout_jax import sample, to_batch


@partial(jax.jit, static_argnames=("tx", "env", "n", "config"), donate_argnames=("policy", "opt_state"))
def train(
    policy: Policy,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    env: ContinuousEnv,
    key: PRNGKeyArray,
    first_step: int | Array,
    n: int,
    config: GFlowNetConfig,
) -> tuple[Policy, PyTree, dict[str, Float[Array, " n"]]]:
    """`n` iterations of collecting a batch and one update on it; the metrics hold a value for each iteration.

    Iteration i draws from fold_in(key, first_step + i), so a run cut into calls equals one call. The memory of
    `policy` and `opt_state` is given away: go on with the returned ones. Compiled once for each `n`. With
    `config.devices` each device samples and learns from its own part of every batch, and all hold the same policy.
    """
    sizes = env.params.max_steps, config.batch_size, env.params.n_dim, config.components

    def iterations(
        policy: Policy, opt_state: PyTree, key: PRNGKeyArray, first_step: Array
    ) -> tuple[Policy, PyTree, dict[str, Array]]:
        def iteration(carry: tuple[Policy, PyTree], step: Array) -> tuple[tuple[Policy, PyTree], dict[str, Array]]:
            policy, opt_state = carry
            noise = draw(jax.random.fold_in(key, step), *sizes, policy.kind, config.dtype)
            noise = sharing.part(noise, config.devices, axis=1)
            batch = to_batch(sample(policy, env, noise, config.epsilon), env)
            loss = lambda policy: shared_learner_jax.balance(terms(policy, batch), policy.log_z, config)
            part = jax.grad(loss, has_aux=True)(policy)
            policy, opt_state, info = shared_learner_jax.update(policy, tx, opt_state, part, config)
            return (policy, opt_state), info

        (policy, opt_state), metrics = jax.lax.scan(iteration, (policy, opt_state), first_step + jnp.arange(n))
        return policy, opt_state, metrics

    shared = sharing.spread(iterations, config.devices, EVERYWHERE, EVERYWHERE)
    return shared(policy, opt_state, key, jnp.asarray(first_step))
