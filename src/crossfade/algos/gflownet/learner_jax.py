"""Making and training a GFlowNet, in JAX. Twin: learner_torch.py."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PyTree

from ...bridge.transforms import clip_by_global_norm
from ...envs.base_jax import Env
from ...errors import UsageError
from .batch import Batch
from .config import GFlowNetConfig, needs_flow
from .losses_jax import log_partition, loss
from .policy_jax import Policy


def make_policy(config: GFlowNetConfig, env: Env, parameters: Mapping[str, Any]) -> Policy:
    """The policy of a config with the given parameters, by name, in `config.dtype`."""
    if config.dtype == "float64" and jax.dtypes.canonicalize_dtype(config.dtype) != config.dtype:
        raise UsageError("dtype=float64 needs JAX's 64-bit mode, which is off. Wrap the run in jax.enable_x64(True).")
    policy = Policy(
        env.observation_dim,
        env.n_actions,
        env.n_parents,
        hidden=config.hidden,
        layers=config.layers,
        backward=config.backward,
        flow=needs_flow(config.loss),
        z_dim=config.z_dim,
    )
    shapes = {_name(path): leaf.shape for path, leaf in jax.tree_util.tree_leaves_with_path(policy)}
    given = {name: tuple(array.shape) for name, array in parameters.items()}
    if shapes != given:
        differing = sorted(name for name in shapes | given if shapes.get(name) != given.get(name))
        table = "; ".join(f"{name}: expected {shapes.get(name)}, got {given.get(name)}" for name in differing)
        raise UsageError(f"the parameters do not fit the policy of this config. {table}. Use those of init.parameters.")
    return jax.tree_util.tree_map_with_path(
        lambda path, _: jnp.array(parameters[_name(path)], config.dtype),  # a copy: training gives the old ones away
        policy,
    )


def make_optimizer(config: GFlowNetConfig, policy: Policy) -> optax.GradientTransformation:
    """Adam with a rate for the networks and one for log Z, both cut by `lr_gamma` every `lr_period` updates.

    torch's Adam in two groups with StepLR. Only the gradient of the networks is clipped.
    """

    def adam(lr: float) -> optax.GradientTransformation:
        # optax.exponential_decay(staircase=True), except that it computes in float32 whatever the precision
        return optax.adam(lambda count: lr * config.lr_gamma ** (jnp.asarray(count) // config.lr_period))

    networks = adam(config.lr)
    if config.clip_norm is not None:
        networks = optax.chain(clip_by_global_norm(config.clip_norm), networks)

    def groups(tree: PyTree) -> PyTree:
        return jax.tree_util.tree_map_with_path(lambda path, _: "log_z" if _name(path) == "log_z" else "networks", tree)

    return optax.partition({"networks": networks, "log_z": adam(config.lr_z)}, groups)


def update(
    policy: Policy, tx: optax.GradientTransformation, opt_state: PyTree, batch: Batch, config: GFlowNetConfig
) -> tuple[Policy, PyTree, dict[str, Float[Array, ""]]]:
    """One gradient step on a batch. Pure: jit it, scan it."""
    (_, info), gradient = jax.value_and_grad(loss, has_aux=True)(policy, batch, config)
    params: PyTree = policy
    updates, opt_state = tx.update(gradient, opt_state, params)
    return eqx.apply_updates(policy, updates), opt_state, info


def log_pf_table(policy: Policy, env: Env) -> Float[Array, "states actions"]:
    """log P_F in every state of an environment that can be enumerated; about -1e30 at invalid actions."""
    state = env.state(jnp.arange(env.n_states))
    return policy(env.observe(state), env.forward_mask(state), env.backward_mask(state)).log_pf


def log_z(policy: Policy, env: Env, config: GFlowNetConfig) -> float | None:
    """The estimate of log Z that the config's loss trains; None where it trains none."""
    source = env.reset()
    output = policy(env.observe(source), env.forward_mask(source), env.backward_mask(source))
    estimate = log_partition(output, policy.log_z.sum(), env.log_reward(source), config.loss)
    return None if estimate is None else float(estimate)


def _name(path: tuple[Any, ...]) -> str:
    """The name torch gives a parameter: `trunk.0.weight`."""
    return jax.tree_util.keystr(path, simple=True, separator=".")
