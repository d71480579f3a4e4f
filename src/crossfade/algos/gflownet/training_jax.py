"""Training compiled as a whole: collecting and learning, many iterations in one program."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ...envs.dag.base_jax import Env
from ...envs.dag.ground_truth import graph_of
from ...errors import UsageError
from . import expected_loss_jax
from .batch import BackNoise, Batch, Noise, Trajectories
from .config import GFlowNetConfig
from .learner_jax import update
from .losses_jax import loss
from .policy_jax import Policy, PolicyOutput
from .sampling import replay_jax
from .sampling.distinct_jax import find
from .sampling.nodes_jax import at_table, dense, table
from .sampling.noise_jax import draw, draw_back
from .sampling.parents_jax import LogPaths, log_path_function, unfinished
from .sampling.replay_jax import Replay
from .sampling.rollout_jax import concatenate, sample, sample_back, sample_back_table, sample_table, sample_until_done

Info = dict[str, Array]
Updated = tuple[Policy, PyTree, Replay | None, Info]
Iterate = Callable[[Policy, PyTree, Replay | None, Noise, BackNoise | None], Updated]
WalkBack = Callable[[Int[Array, "batch d"], Float[Array, "steps batch parents"]], Trajectories]


class Constants(NamedTuple):
    """What a run is given once, beside its config."""

    data: Int[Array, "objects d"] | None = None
    """Objects to build trajectories from, for `config.data_batch`."""
    log_paths: Float[Array, " states"] | None = None
    """Of backward=maxent, the log of the number of ways to each state; None where the environment has a formula."""


@partial(jax.jit, static_argnames=("tx", "env", "n", "config"), donate_argnames=("policy", "opt_state", "buffer"))
def train(
    policy: Policy,
    tx: optax.GradientTransformation,
    opt_state: PyTree,
    buffer: Replay | None,
    env: Env,
    key: PRNGKeyArray,
    first_step: int | Array,
    n: int,
    config: GFlowNetConfig,
    constants: Constants = Constants(),  # noqa: B008
) -> tuple[Policy, PyTree, Replay | None, dict[str, Float[Array, " n"]]]:
    """`n` iterations of collecting a batch and one update on it; the metrics hold a value for each iteration.

    Iteration i draws from fold_in(key, first_step + i), so a run cut into calls equals one call. The memory of
    `policy`, `opt_state` and `buffer` is given away: go on with the returned ones. Compiled once for each `n`;
    `config.execution` must be resolved, not "auto". Without `config.replay_batch` there is no buffer: None.
    """
    _check(buffer, config, constants)
    iterate = (_iterate_expected if config.objective == "expected" else _EXECUTIONS[config.execution])(
        tx, env, config, constants
    )
    off_policy = config.data_batch + config.replay_batch > 0

    def iteration(carry: tuple[Policy, PyTree, Replay | None], step: Array) -> tuple[tuple, Info]:
        now = jax.random.fold_in(key, step)
        noise = draw(now, env.max_steps, config.batch_size, env.n_actions, config.dtype)
        *state, info = iterate(*carry, noise, _draw_back(now, env, config) if off_policy else None)
        return tuple(state), info

    (policy, opt_state, buffer), metrics = jax.lax.scan(
        iteration, (policy, opt_state, buffer), first_step + jnp.arange(n)
    )
    return policy, opt_state, buffer, metrics


def _draw_back(key: PRNGKeyArray, env: Env, config: GFlowNetConfig) -> BackNoise:
    """The randomness of an iteration's trajectories that are built backwards; `key` is the iteration's."""
    sizes = config.data_batch, config.replay_batch, config.replay_capacity * (config.replay_sampling == "weighted")
    return draw_back(jax.random.fold_in(key, 2), env.max_steps, *sizes, env.n_parents, config.dtype)


class _Evaluated(NamedTuple):
    """A policy whose networks have been evaluated on the nodes already."""

    log_z: Array
    output: PolicyOutput

    def __call__(self, *nodes: Array | None) -> PolicyOutput:
        return self.output


def _iterate_over_table(
    tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig, constants: Constants
) -> Iterate:
    """The networks see every state of the environment, once: the samples are drawn from what the loss is made of."""
    nodes = table(env, config.loss == "fm", log_paths(env, config, constants))

    def objective(policy: Policy, batch: tuple, config: GFlowNetConfig) -> tuple[Array, tuple[Info, Replay | None]]:
        buffer, noise, back = batch
        output = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask, nodes.log_pb)
        held = jax.lax.stop_gradient(output)
        forward = sample_table(held.logits, env, noise, config.epsilon, config.temperature)
        walk_back = partial(sample_back_table, held.log_pb, env)
        trajectories, buffer = _with_off_policy(forward, buffer, back, walk_back, env, config, constants)
        value, info = loss(_Evaluated(policy.log_z, output), at_table(trajectories, env, nodes), config)
        return value, (info, buffer)

    def iterate(
        policy: Policy, opt_state: PyTree, buffer: Replay | None, noise: Noise, back: BackNoise | None
    ) -> Updated:
        policy, opt_state, (info, buffer) = update(policy, tx, opt_state, (buffer, noise, back), config, objective)
        return policy, opt_state, buffer, info

    return iterate


def _iterate_over_visits(
    tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig, constants: Constants
) -> Iterate:
    """The networks see every step of every trajectory, padding included."""
    ways = log_paths(env, config, constants)

    def iterate(
        policy: Policy, opt_state: PyTree, buffer: Replay | None, noise: Noise, back: BackNoise | None
    ) -> Updated:
        forward = sample(policy, env, noise, config.epsilon, config.temperature)
        walk_back = partial(sample_back, policy, env, log_paths=ways)
        trajectories, buffer = _with_off_policy(forward, buffer, back, walk_back, env, config, constants)
        batch = dense(trajectories, env, config.loss == "fm", ways)
        policy, opt_state, info = update(policy, tx, opt_state, batch, config)
        return policy, opt_state, buffer, info

    return iterate


def _iterate_over_distinct(
    tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig, constants: Constants
) -> Iterate:
    """The networks see each visited state once. Batches differ in how many those are: the smallest of a few compiled
    updates that holds them is run, the largest of which holds any batch."""
    ways = log_paths(env, config, constants)

    def iterate(
        policy: Policy, opt_state: PyTree, buffer: Replay | None, noise: Noise, back: BackNoise | None
    ) -> Updated:
        forward = sample_until_done(policy, env, noise, config.epsilon, config.temperature)
        walk_back = partial(sample_back, policy, env, log_paths=ways)
        trajectories, buffer = _with_off_policy(forward, buffer, back, walk_back, env, config, constants)
        found = find(trajectories.x, env)
        capacities = [math.ceil(found.node.size * share) for share in (1 / 8, 1 / 4, 3 / 8, 1 / 2, 1)]

        def update_within(capacity: int) -> tuple[Policy, PyTree, Info]:
            batch = dense(trajectories._replace(x=found.objects(capacity)), env, config.loss == "fm", ways)
            return update(policy, tx, opt_state, batch._replace(node=found.node), config)

        smallest = jnp.searchsorted(jnp.array(capacities), found.total)
        branches = [partial(update_within, capacity) for capacity in capacities]
        policy_after, opt_state, info = jax.lax.switch(smallest, branches)
        return policy_after, opt_state, buffer, info

    return iterate


def _iterate_expected(
    tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig, constants: Constants
) -> Iterate:
    """The exact expectation: the networks see every state, and nothing is sampled."""
    nodes = table(env, log_paths=log_paths(env, config, constants))
    objective = expected(config)

    def iterate(
        policy: Policy, opt_state: PyTree, buffer: Replay | None, noise: Noise, back: BackNoise | None
    ) -> Updated:
        policy, opt_state, info = update(policy, tx, opt_state, nodes, config, objective)
        return policy, opt_state, buffer, info

    return iterate


_EXECUTIONS = {"table": _iterate_over_table, "dense": _iterate_over_visits, "unique": _iterate_over_distinct}


def expected(config: GFlowNetConfig) -> Callable[[Policy, Batch, GFlowNetConfig], tuple[Array, Info]]:
    """The expectation of the config's loss over all trajectories, as an objective on the table of all states."""
    graph = graph_of(config.env)
    if graph is None:
        raise UsageError(
            f"objective=expected: expected an environment with few enough states to visit them all, got {config.env}. "
            f"Use a smaller one, or objective=sampled."
        )
    return lambda policy, nodes, config: expected_loss_jax.loss(policy, nodes, graph, config)


def log_paths(env: Env, config: GFlowNetConfig, constants: Constants) -> LogPaths | None:
    """Of backward=maxent, the log of the number of ways to objects."""
    return log_path_function(env, constants.log_paths) if config.backward == "maxent" else None


def _with_off_policy(
    forward: Trajectories,
    buffer: Replay | None,
    noise: BackNoise | None,
    walk_back: WalkBack,
    env: Env,
    config: GFlowNetConfig,
    constants: Constants,
) -> tuple[Trajectories, Replay | None]:
    """The batch of an iteration: trajectories of the policy, then some built backwards from data, then some from the
    best objects found so far, those of this very batch included."""
    if noise is None:
        return forward, buffer
    ends = []
    if constants.data is not None:
        ends.append(constants.data[(noise.data * len(constants.data)).astype(jnp.int32)])
    if buffer is not None:
        found = forward.x[-1]
        buffer = replay_jax.add(buffer, found, env.log_reward(unfinished(found)))
        ends.append(replay_jax.pick(buffer, noise.pick, noise.pick_gumbel, config.replay_sampling == "weighted"))
    return concatenate(forward, walk_back(jnp.concatenate(ends), noise.gumbel)), buffer


def _check(buffer: Replay | None, config: GFlowNetConfig, constants: Constants) -> None:
    if config.execution not in _EXECUTIONS:
        raise UsageError(f"execution: expected one of {', '.join(_EXECUTIONS)}, got {config.execution!r}. Resolve it.")
    if (buffer is None) != (config.replay_batch == 0) or (constants.data is None) != (config.data_batch == 0):
        raise UsageError(
            f"expected a buffer for replay_batch, constants.data for data_batch, and neither without, got replay_batch="
            f"{config.replay_batch} with {'no' if buffer is None else 'a'} buffer, data_batch={config.data_batch} with "
            f"{'no' if constants.data is None else 'some'} data. Use those of System.start_buffer and System.constants."
        )
