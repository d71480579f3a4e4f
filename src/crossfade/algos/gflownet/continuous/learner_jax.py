"""A continuous GFlowNet in JAX: its policy and its loss; updates are ..learner_jax's. Twin: learner_torch.py."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ....envs.dag.continuous_jax import ContinuousEnv
from ....nn.layers_jax import filled
from ..batch import MASKED
from ..config import GFlowNetConfig, needs_flow
from ..losses_jax import Terms, balance, summary
from .batch import NO_MOVE, Batch, Kind, Options
from .density_jax import log_prob
from .initial_parameters import density
from .policy_jax import Choice, Policy

Scalar = Float[Array, ""]


def make_policy(config: GFlowNetConfig, env: ContinuousEnv, parameters: Mapping[str, Any]) -> Policy:
    """The policy of a config for an environment, with the given parameters by name, in `config.dtype`."""
    policy = Policy(
        density(env.params),
        env.params.observation_dim,
        env.params.n_dim,
        components=config.components,
        hidden=config.hidden,
        layers=config.layers,
        backward=config.backward,
        flow=needs_flow(config.loss),
        z_dim=config.z_dim,
    )
    return filled(policy, parameters, config.dtype)


def terms(policy: Policy, batch: Batch) -> Terms:
    """The losses' terms along the trajectories of a batch; the log P_B of stop is 0.

    Every state gives the density of the transition that leaves it and of undoing the one that led to it.
    """
    done = jnp.pad(batch.jump, ((1, 0), (0, 0)))
    inputs = _StateInputs(
        walking=~done.all(1),
        observation=batch.observation,
        forward=batch.forward,
        backward=batch.backward,
        ratio=jnp.pad(batch.ratio, ((0, 1), (0, 0), (0, 0)), constant_values=NO_MOVE),
        jump=jnp.pad(batch.jump, ((0, 1), (0, 0))),
        ratio_back=jnp.pad(batch.ratio_back, ((1, 0), (0, 0), (0, 0)), constant_values=NO_MOVE),
        jump_back=jnp.pad(batch.first, ((1, 0), (0, 0))),
    )

    def evaluate(now: _StateInputs) -> _StateOutputs:
        heads = policy(now.observation)
        return _StateOutputs(
            log_pf=_log_prob(policy.kind, heads.forward, now.forward, now.ratio, now.jump),
            log_pb=_log_prob(policy.kind, heads.backward, now.backward, now.ratio_back, now.jump_back),
            log_flow=heads.log_flow,
            log_stop=_log_choice(heads.forward, now.forward)[1],
        )

    def step(_: None, now: _StateInputs) -> tuple[None, _StateOutputs]:
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(evaluate, now))
        return None, jax.lax.cond(now.walking, evaluate, lambda _: zeros, now)

    _, output = jax.lax.scan(step, None, inputs)  # times at which all have stopped are not evaluated
    log_reward, stop = batch.log_reward.astype(output.log_pf.dtype), batch.valid & batch.jump
    return Terms(
        log_pf=jnp.where(batch.valid, output.log_pf[:-1], 0),
        log_pb=jnp.where(batch.valid & ~stop, output.log_pb[1:], 0),
        log_flow=jnp.where(done, 0, output.log_flow),
        log_reward=log_reward[-1],
        log_reward_t=log_reward,
        stop_t=jnp.where(batch.forward.can_jump, output.log_stop, MASKED),
        valid=batch.valid,
        stop=stop,
    )


def loss(policy: Policy, batch: Batch, config: GFlowNetConfig) -> tuple[Scalar, dict[str, Scalar]]:
    """The loss that the config names, and what is logged of the batch."""
    along = terms(policy, batch)
    value = balance(along, policy.log_z, config)
    return value, summary(value, policy.log_z, along)


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


class _StateInputs(NamedTuple):
    """The states of all trajectories, time first, each with the transitions that leave it and that led to it."""

    walking: Any  # (steps + 1,) whether any trajectory has not stopped
    observation: Any
    forward: Options
    backward: Options
    ratio: Any
    jump: Any
    ratio_back: Any
    jump_back: Any


class _StateOutputs(NamedTuple):
    """The networks' outputs for the states of one time."""

    log_pf: Array
    log_pb: Array
    log_flow: Array
    log_stop: Array


def _log_prob(
    kind: Kind,
    choice: Choice | None,
    options: Options,
    ratio: Float[Array, "batch d"],
    jump: Bool[Array, " batch"],
) -> Float[Array, " batch"]:
    """Log-density of each transition: of the jump where there was one, else of the move by these ratios."""
    log_move, log_jump = _log_choice(choice, options)
    log_ratio = 0 if choice is None else log_prob(kind, choice.raw, ratio)
    return jnp.where(jump, log_jump, log_move + log_ratio - options.log_width)


def _log_choice(choice: Choice | None, options: Options) -> tuple[Float[Array, " batch"], Float[Array, " batch"]]:
    """Log-probabilities of a move and of a jump: 0, which is certainty, unless both are possible."""
    both = options.can_move & options.can_jump
    logit = jnp.zeros(both.shape, options.log_width.dtype) if choice is None else choice.jump
    return jnp.where(both, jax.nn.log_sigmoid(-logit), 0), jnp.where(both, jax.nn.log_sigmoid(logit), 0)
