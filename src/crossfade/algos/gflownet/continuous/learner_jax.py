"""Making and training a continuous GFlowNet, in JAX. Twin: learner_torch.py."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, PyTree

from ....envs.continuous_jax import ContinuousEnv
from .. import modules_jax
from ..config import GFlowNetConfig, needs_flow
from ..losses_jax import Terms, balance
from ..policy_jax import MASKED
from .batch import Batch, Options
from .density_jax import log_prob
from .init import check, density
from .policy_jax import Choice, Policy

Scalar = Float[Array, ""]


def make_policy(config: GFlowNetConfig, env: ContinuousEnv, parameters: Mapping[str, Any]) -> Policy:
    """The policy of a config with the given parameters, by name, in `config.dtype`."""
    check(config)
    policy = Policy(
        density(env.params),
        env.params.observation_dim,
        env.params.n_dim,
        config.components,
        config.hidden,
        config.layers,
        config.backward,
        needs_flow(config.loss),
        config.z_dim,
    )
    return modules_jax.filled(policy, parameters, config.dtype)


def make_optimizer(config: GFlowNetConfig, policy: Policy) -> optax.GradientTransformation:
    """The discrete GFlowNet's: Adam with a rate for the networks and one for log Z."""
    return modules_jax.optimizer(config)


def terms(policy: Policy, batch: Batch) -> Terms:
    """What the losses are made of. The policy is evaluated once on every state."""
    output = policy(batch.observation)
    forward, back = _at(output.forward, slice(-1)), _at(output.backward, slice(1, None))
    log_pf = _log_prob(policy, forward, _at(batch.forward, slice(-1)), batch.ratio, batch.jump)
    log_pb = _log_prob(policy, back, _at(batch.backward, slice(1, None)), batch.ratio_back, batch.first)
    log_reward, stop = batch.log_reward.astype(log_pf.dtype), batch.valid & batch.jump
    return Terms(
        log_pf=jnp.where(batch.valid, log_pf, 0),
        log_pb=jnp.where(batch.valid & ~stop, log_pb, 0),
        log_flow=output.log_flow,
        log_reward=log_reward[-1],
        log_reward_t=log_reward,
        stop_t=jnp.where(batch.forward.can_jump, _log_jump(output.forward, batch.forward)[1], MASKED),
        valid=batch.valid,
        stop=stop,
    )


def loss(policy: Policy, batch: Batch, config: GFlowNetConfig) -> tuple[Scalar, dict[str, Scalar]]:
    """The loss that the config names, and what to log about the batch."""
    along = terms(policy, batch)
    value = balance(along, policy.log_z, config)
    info = {
        "loss": value,
        "log_z": policy.log_z.sum(),
        "mean_log_reward": along.log_reward.mean(),
        "mean_length": batch.valid.sum(0).astype(value.dtype).mean(),
    }
    return value, info


def update(
    policy: Policy, tx: optax.GradientTransformation, opt_state: PyTree, batch: Batch, config: GFlowNetConfig
) -> tuple[Policy, PyTree, dict[str, Scalar]]:
    """One gradient step on a batch. Pure: jit it, scan it."""
    (_, info), gradient = jax.value_and_grad(loss, has_aux=True)(policy, batch, config)
    params: PyTree = policy
    updates, opt_state = tx.update(gradient, opt_state, params)
    return eqx.apply_updates(policy, updates), opt_state, info


def log_z(policy: Policy, env: ContinuousEnv, config: GFlowNetConfig) -> float | None:
    """The estimate of log Z that the config's loss trains; None where it trains none."""
    source = env.reset((), policy.log_z.dtype)
    flow = policy(env.observe(source)).log_flow
    match config.loss:
        case "tb":
            return float(policy.log_z.sum())
        case "db" | "subtb":
            return float(flow)
        case "fldb":
            return float(flow + env.log_reward(source))
    return None


def _log_prob(
    policy: Policy,
    choice: Choice | None,
    options: Options,
    ratio: Float[Array, "steps batch d"],
    jump: Bool[Array, "steps batch"],
) -> Float[Array, "steps batch"]:
    """Log-density of each transition: of the jump where there was one, else of the move by these ratios."""
    log_move, log_jump = _log_jump(choice, options)
    log_ratio = 0 if choice is None else log_prob(policy.kind, choice.raw, ratio)
    return jnp.where(jump, log_jump, log_move + log_ratio - options.log_width)


def _log_jump(choice: Choice | None, options: Options) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Log-probabilities of a move and of a jump: 0, which is certainty, unless both are possible."""
    both = options.can_move & options.can_jump
    logit = jnp.zeros(both.shape, options.log_width.dtype) if choice is None else choice.jump
    return jnp.where(both, jax.nn.log_sigmoid(-logit), 0), jnp.where(both, jax.nn.log_sigmoid(logit), 0)


def _at(tree: Any, index: slice) -> Any:
    return jax.tree.map(lambda array: array[index], tree)
