"""Training compiled as a whole: collecting and learning, many iterations in one program."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ...envs.base_jax import Env
from ...errors import UsageError
from .batch import Noise
from .config import GFlowNetConfig
from .distinct import find
from .learner_jax import update
from .losses_jax import loss
from .nodes_jax import at_table, dense, table
from .noise_jax import draw
from .policy_jax import Policy, PolicyOutput
from .rollout import sample, sample_table, sample_until_done

Info = dict[str, Array]
Updated = tuple[Policy, PyTree, Info]
Iterate = Callable[[Policy, PyTree, Noise], Updated]


@partial(jax.jit, static_argnames=("tx", "env", "n", "config"), donate_argnames=("policy", "opt_state"))
def train(
    policy: Policy,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    env: Env,
    key: PRNGKeyArray,
    first_step: int | Array,
    n: int,
    config: GFlowNetConfig,
) -> tuple[Policy, PyTree, dict[str, Float[Array, " n"]]]:
    """`n` iterations of collecting a batch and one update on it; the metrics hold a value for each iteration.

    Iteration i draws from fold_in(key, first_step + i), so a run cut into calls equals one call. The memory of
    `policy` and `opt_state` is given away: go on with the returned ones. Compiled once for each `n`; `config.execution`
    must be resolved, not "auto".
    """
    if config.execution not in _EXECUTIONS:
        raise UsageError(f"execution: expected one of {', '.join(_EXECUTIONS)}, got {config.execution!r}. Resolve it.")
    iterate = _EXECUTIONS[config.execution](tx, env, config)

    def iteration(carry: tuple[Policy, PyTree], step: Array) -> tuple[tuple[Policy, PyTree], Info]:
        noise = draw(jax.random.fold_in(key, step), env.max_steps, config.batch_size, env.n_actions, config.dtype)
        policy, opt_state, info = iterate(*carry, noise)
        return (policy, opt_state), info

    (policy, opt_state), metrics = jax.lax.scan(iteration, (policy, opt_state), first_step + jnp.arange(n))
    return policy, opt_state, metrics


class _Evaluated(NamedTuple):
    """A policy whose networks have been evaluated on the nodes already."""

    log_z: Array
    output: PolicyOutput

    def __call__(self, *nodes: Array | None) -> PolicyOutput:
        return self.output


def _over_table(tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig) -> Iterate:
    """The networks see every state of the environment, once: the samples are drawn from what the loss is made of."""
    nodes = table(env, config.loss == "fm")

    def objective(policy: Policy, noise: Noise) -> tuple[Array, Info]:
        output = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask)
        logits = jax.lax.stop_gradient(output.logits)
        trajectories = sample_table(logits, env, noise, config.epsilon, config.temperature)
        return loss(_Evaluated(policy.log_z, output), at_table(trajectories, env, nodes), config)

    def iterate(policy: Policy, opt_state: PyTree, noise: Noise) -> Updated:
        (_, info), gradient = jax.value_and_grad(objective, has_aux=True)(policy, noise)
        params: PyTree = policy
        updates, opt_state = tx.update(gradient, opt_state, params)
        return eqx.apply_updates(policy, updates), opt_state, info

    return iterate


def _over_visits(tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig) -> Iterate:
    """The networks see every step of every trajectory, padding included."""

    def iterate(policy: Policy, opt_state: PyTree, noise: Noise) -> Updated:
        trajectories = sample(policy, env, noise, config.epsilon, config.temperature)
        return update(policy, tx, opt_state, dense(trajectories, env, config.loss == "fm"), config)

    return iterate


def _over_distinct(tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig) -> Iterate:
    """The networks see each visited state once. Batches differ in how many those are: the smallest of a few compiled
    updates that holds them is run, the largest of which holds any batch."""

    def iterate(policy: Policy, opt_state: PyTree, noise: Noise) -> Updated:
        trajectories = sample_until_done(policy, env, noise, config.epsilon, config.temperature)
        found = find(trajectories.x, env)
        capacities = [math.ceil(found.node.size * share) for share in (1 / 8, 1 / 4, 3 / 8, 1 / 2, 1)]

        def update_within(capacity: int) -> Updated:
            batch = dense(trajectories._replace(x=found.objects(capacity)), env, config.loss == "fm")
            return update(policy, tx, opt_state, batch._replace(node=found.node), config)

        smallest = jnp.searchsorted(jnp.array(capacities), found.total)
        return jax.lax.switch(smallest, [partial(update_within, capacity) for capacity in capacities])

    return iterate


_EXECUTIONS = {"table": _over_table, "dense": _over_visits, "unique": _over_distinct}
