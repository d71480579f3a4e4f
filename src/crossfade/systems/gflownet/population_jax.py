"""Populations: runs that differ in their seed and in hyper-parameters, trained side by side in one compiled program.

Each member is the run that its config gives alone: same parameters at the start, same keys, same updates. The numbers
that vary are inputs of the program, so it is compiled once however many members there are and whatever they try.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...algos.gflownet import training_jax
from ...algos.gflownet.config import GFlowNetConfig
from ...algos.gflownet.evaluation import exact_jax
from ...algos.gflownet.learner_jax import log_pf_table, make_optimizer
from ...algos.gflownet.losses_jax import log_partition
from ...algos.gflownet.policy_jax import Policy
from ...algos.gflownet.sampling.replay_jax import Replay
from ...envs.dag.base_jax import Env
from ...envs.dag.ground_truth import graph_of
from ...errors import UsageError
from ..population import check_members, with_values
from .discrete_jax import System

TRACED = ("lr", "lr_z", "epsilon", "temperature", "subtb_lambda")
VARYING = ("seed", *TRACED)
"""The settings in which members may differ. Any other changes the program itself."""
DEFAULTS = {name: getattr(GFlowNetConfig, name) for name in VARYING}


class Members(NamedTuple):
    """The state of a population; every array has a first axis of members."""

    policy: Policy
    opt_state: PyTree
    buffer: Replay | None
    key: PRNGKeyArray
    settings: dict[str, Array]


class Population:
    """Members in the order of their configs, at the start; `run` trains all of them, `evaluate` judges each."""

    varying = VARYING

    def __init__(self, configs: Sequence[GFlowNetConfig]):
        check_members(configs, VARYING)
        if configs[0].continuous:
            raise UsageError(
                f"a population needs a discrete environment, got {configs[0].env}. Train its members alone."
            )
        systems = [System(config) for config in configs]
        self.env, self.config = systems[0].env, replace(systems[0].config, **DEFAULTS)
        self.constants = systems[0].constants
        members = [_member(system, config) for system, config in zip(systems, configs, strict=True)]
        self.members = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)

    def run(self, step: int, n: int) -> dict[str, Float[np.ndarray, "members n"]]:
        """Iterations `step` to `step + n` of every member: their metrics, on the host."""
        self.members, metrics = train(self.members, self.env, step, n, self.config, self.constants)
        return jax.device_get(metrics)

    def evaluate(self) -> dict[str, Float[np.ndarray, " members"]]:
        """How far from the target each member is now, on the host; see `exact`."""
        return jax.device_get(exact(self.members.policy, self.env, self.config))


@partial(jax.jit, static_argnames=("env", "n", "config"), donate_argnames="members")
def train(
    members: Members,
    env: Env,
    first_step: int | Array,
    n: int,
    config: GFlowNetConfig,
    constants: training_jax.Constants,
) -> tuple[Members, dict[str, Float[Array, "members n"]]]:
    """`n` iterations of every member, and their metrics at each.

    What the members have of their own is not read from `config`: leave it at its default, and every population is the
    same program.
    """

    def member(state: Members) -> tuple[Members, dict[str, Array]]:
        own = with_values(config, state.settings)
        tx = _optimizer(own, state.policy)
        # Compiled by itself it would want a config that can be hashed, and so no traced numbers in it.
        train_one = inspect.unwrap(training_jax.train)
        policy, opt_state, buffer, metrics = train_one(
            state.policy, tx, state.opt_state, state.buffer, env, state.key, first_step, n, own, constants
        )
        return state._replace(policy=policy, opt_state=opt_state, buffer=buffer), metrics

    return _side_by_side(config)(member)(members)


@partial(jax.jit, static_argnames=("env", "config"))
def exact(policy: Policy, env: Env, config: GFlowNetConfig) -> dict[str, Float[Array, " members"]]:
    """How far from the target every member's policy is: exact, by dynamic programming over all states, and empty where
    there are too many."""
    return {} if graph_of(config.env) is None else jax.lax.map(partial(_exact, env, config), policy)


def _member(system: System, config: GFlowNetConfig) -> Members:
    """One run at its start."""
    policy: Any = system.make_policy(system.parameters())
    buffer: Any = system.start_buffer()
    return Members(
        policy,
        _optimizer(config, policy).init(policy),
        buffer,
        jax.random.wrap_key_data(jnp.asarray(system.key)),
        {name: jnp.asarray(getattr(config, name), config.dtype) for name in TRACED},
    )


def _side_by_side(config: GFlowNetConfig) -> Callable[[Callable], Callable]:
    """How members share a program: each operation on all at once, or, where a member's batch decides how much work
    there is, one member after the other, so that none does the work of another."""
    return (lambda member: partial(jax.lax.map, member)) if config.execution == "unique" else jax.vmap


def _exact(env: Env, config: GFlowNetConfig, policy: Policy) -> dict[str, Array]:
    """Total variation, and the error of log Z for a loss that learns it."""
    graph: Any = graph_of(config.env)
    p = exact_jax.terminating_distribution(graph, log_pf_table(policy, env))
    source = env.reset()
    output = policy(env.observe(source), env.forward_mask(source), env.backward_mask(source))
    log_z = log_partition(output, policy.log_z, env.log_reward(source), config.loss)
    found = exact_jax.metrics(graph, p, jnp.zeros((), p.dtype) if log_z is None else log_z)
    return {name: found[name] for name in ("tv", "log_z_error") if name == "tv" or log_z is not None}


def _optimizer(config: GFlowNetConfig, policy: Policy) -> optax.GradientTransformation:
    """The optimiser of a run with traced learning rates: Adam's step is in proportion to them, so they come last."""
    unit = make_optimizer(with_values(config, {"lr": 1.0, "lr_z": 1.0}), policy)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        step: Any
        step, state = unit.update(updates, state, params)
        scaled = jax.tree.map(lambda leaf: config.lr * leaf, step)
        return eqx.tree_at(lambda policy: policy.log_z, scaled, config.lr_z * step.log_z), state

    return optax.GradientTransformation(unit.init, update)
