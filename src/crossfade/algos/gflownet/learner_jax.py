"""The learner of a GFlowNet, in JAX: its policy, its optimiser, one update. Twin: learner_torch.py."""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from ...envs.dag.base_jax import Env
from ...errors import UsageError
from ...nn.layers_jax import filled
from .config import GFlowNetConfig, needs_flow
from .losses_jax import log_partition, loss
from .optimizer_jax import optimizer
from .policy_jax import Policy
from .published.double_step_jax import double_step

Objective = Callable[[Any, Any, GFlowNetConfig], tuple[Array, PyTree]]
"""`(policy, batch, config) -> (value to minimise, quantities to log)`."""


def make_policy(config: GFlowNetConfig, env: Env, parameters: Mapping[str, Any]) -> Policy:
    """The policy of a config for an environment, with the given parameters by name, in `config.dtype`."""
    if len(config.backward_logits) not in (0, env.n_parents):
        raise UsageError(
            f"backward_logits: expected {env.n_parents} numbers, one for each backward action of {env}, got "
            f"{len(config.backward_logits)}. Leave them out to make all alike."
        )
    policy = Policy(
        env.observation_dim,
        env.n_actions,
        env.n_parents,
        hidden=config.hidden,
        layers=config.layers,
        backward="learned" if config.legacy_untied_trunk else config.backward,
        flow=needs_flow(config.loss),
        z_dim=config.z_dim,
        backward_logits=config.backward_logits,
        finished_mask=config.legacy_finished_mask,
    )
    return filled(policy, parameters, config.dtype)


def make_optimizer(config: GFlowNetConfig, policy: PyTree) -> optax.GradientTransformation:
    """Adam with one learning rate for the networks and one for log Z, both cut by `lr_gamma` every `lr_period` updates.

    Only the gradient of the networks is clipped.
    """
    return double_step(config) if config.legacy_double_step else optimizer(config)


def update(
    policy: PyTree,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    batch: PyTree,
    config: GFlowNetConfig,
    objective: Objective = loss,
) -> tuple[PyTree, PyTree, PyTree]:
    """One gradient step on a batch; returns what `objective` reports beside its value."""
    (_, info), gradient = jax.value_and_grad(objective, has_aux=True)(policy, batch, config)
    updates, opt_state = tx.update(gradient, opt_state, policy)
    return eqx.apply_updates(policy, updates), opt_state, info


def log_pf_table(policy: Policy, env: Env) -> Float[Array, "states actions"]:
    """log P_F of every state of an enumerable environment; about MASKED at invalid actions."""
    state = env.state(jnp.arange(env.n_states))
    return policy(env.observe(state), env.forward_mask(state), env.backward_mask(state)).log_pf


def log_z(policy: Policy, env: Env, config: GFlowNetConfig) -> float | None:
    """The estimate of log Z that the config's loss trains; None where it trains none."""
    source = env.reset()
    output = policy(env.observe(source), env.forward_mask(source), env.backward_mask(source))
    estimate = log_partition(output, policy.log_z, env.log_reward(source), config.loss)
    return None if estimate is None else float(estimate)
