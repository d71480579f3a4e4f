"""Training compiled as a whole: collecting and learning, many iterations in one program, on one device or several."""

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
from ...optim import sharing_jax as sharing
from ...optim.sharing_jax import EVERYWHERE
from . import expected_loss_jax, shared_learner_jax
from .batch import BackNoise, Batch, Noise, Trajectories
from .config import GFlowNetConfig
from .learner_jax import update
from .policy_jax import Policy
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
    """Arrays that stay the same throughout a run."""

    data: Int[Array, "objects d"] | None = None
    """Objects to build trajectories from, for `config.data_batch`."""
    log_paths: Float[Array, " states"] | None = None
    """For backward=maxent: the log number of trajectories to each state; None where the environment has a formula."""


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
    `config.execution` must be resolved, not "auto". Without `config.replay_batch` there is no buffer: None. With
    `config.devices` each device samples and learns from its own part of every batch, and all hold the same policy.
    """
    _check(buffer, config, constants)
    make = _iterate_expected if config.objective == "expected" else _EXECUTIONS[config.execution]
    off_policy = config.data_batch + config.replay_batch > 0

    def iterations(
        policy: Policy,
        opt_state: PyTree,
        buffer: Replay | None,
        key: PRNGKeyArray,
        first_step: Array,
        constants: Constants,
    ) -> tuple[Policy, PyTree, Replay | None, Info]:
        iterate = make(tx, env, config, constants)

        def iteration(carry: tuple[Policy, PyTree, Replay | None], step: Array) -> tuple[tuple, Info]:
            now = jax.random.fold_in(key, step)
            noise = draw(now, env.max_steps, config.batch_size, env.n_actions, config.dtype)
            back = _draw_back(now, env, config) if off_policy else None
            *state, info = iterate(*carry, sharing.part(noise, config.devices, axis=1), back)
            return tuple(state), info

        start = policy, opt_state, buffer
        (policy, opt_state, buffer), metrics = jax.lax.scan(iteration, start, first_step + jnp.arange(n))
        return policy, opt_state, buffer, metrics

    shared = sharing.spread(iterations, config.devices, EVERYWHERE, EVERYWHERE)
    return shared(policy, opt_state, buffer, key, jnp.asarray(first_step), constants)


def _draw_back(key: PRNGKeyArray, env: Env, config: GFlowNetConfig) -> BackNoise:
    """The randomness of this device's trajectories that are built backwards; `key` is the iteration's."""
    sizes = config.data_batch, config.replay_batch, config.replay_capacity * (config.replay_sampling == "weighted")
    noise = draw_back(jax.random.fold_in(key, 2), env.max_steps, *sizes, env.n_parents, config.dtype)
    if config.devices == 1:
        return noise
    gumbel = [
        sharing.part(part, config.devices, axis=1) for part in jnp.split(noise.gumbel, [config.data_batch], axis=1)
    ]
    ends = sharing.part(noise._replace(gumbel=None), config.devices)
    return ends._replace(gumbel=jnp.concatenate(gumbel, axis=1))


def _iterate_over_table(
    tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig, constants: Constants
) -> Iterate:
    """The networks are evaluated on every state of the environment, once, and trajectories are sampled from that."""
    nodes = table(env, config.loss == "fm", log_paths(env, config, constants))

    def objective(
        policy: Policy, buffer: Replay | None, noise: Noise, back: BackNoise | None
    ) -> tuple[Array, tuple[Info, Replay | None]]:
        output = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask, nodes.log_pb)
        held = jax.lax.stop_gradient(output)
        forward = sample_table(held.logits, env, noise, config.epsilon, config.temperature)
        walk_back = partial(sample_back_table, held.log_pb, env)
        trajectories, buffer = _with_off_policy(forward, buffer, back, walk_back, env, config, constants)
        value, info = shared_learner_jax.loss(output, at_table(trajectories, env, nodes), policy.log_z, config)
        return value, (info, buffer)

    def iterate(
        policy: Policy, opt_state: PyTree, buffer: Replay | None, noise: Noise, back: BackNoise | None
    ) -> Updated:
        gradient, (info, buffer) = jax.grad(objective, has_aux=True)(policy, buffer, noise, back)
        policy, opt_state, info = shared_learner_jax.update(policy, tx, opt_state, (gradient, info), config)
        return policy, opt_state, buffer, info

    return iterate


def _gradient_on(batch: Batch, policy: Policy, config: GFlowNetConfig) -> tuple[Policy, Info]:
    """This device's part of the gradient of the loss on a batch, and of what is logged."""

    def objective(policy: Policy) -> tuple[Array, Info]:
        output = policy(batch.observation, batch.forward_mask, batch.backward_mask, batch.log_pb)
        return shared_learner_jax.loss(output, batch, policy.log_z, config)

    return jax.grad(objective, has_aux=True)(policy)


def _iterate_over_visits(
    tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig, constants: Constants
) -> Iterate:
    """The networks are evaluated on every step of every trajectory, padding included."""
    paths = log_paths(env, config, constants)

    def iterate(
        policy: Policy, opt_state: PyTree, buffer: Replay | None, noise: Noise, back: BackNoise | None
    ) -> Updated:
        forward = sample(policy, env, noise, config.epsilon, config.temperature)
        walk_back = partial(sample_back, policy, env, log_paths=paths)
        trajectories, buffer = _with_off_policy(forward, buffer, back, walk_back, env, config, constants)
        part = _gradient_on(dense(trajectories, env, config.loss == "fm", paths), policy, config)
        policy, opt_state, info = shared_learner_jax.update(policy, tx, opt_state, part, config)
        return policy, opt_state, buffer, info

    return iterate


def _iterate_over_distinct(
    tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig, constants: Constants
) -> Iterate:
    """The networks are evaluated once on each visited state. Batches differ in how many those are: of a few compiled
    gradients the smallest that holds them is run; the largest holds any batch."""
    paths = log_paths(env, config, constants)

    def iterate(
        policy: Policy, opt_state: PyTree, buffer: Replay | None, noise: Noise, back: BackNoise | None
    ) -> Updated:
        forward = sample_until_done(policy, env, noise, config.epsilon, config.temperature)
        walk_back = partial(sample_back, policy, env, log_paths=paths)
        trajectories, buffer = _with_off_policy(forward, buffer, back, walk_back, env, config, constants)
        found = find(trajectories.x, env)
        capacities = [math.ceil(found.node.size * share) for share in (1 / 8, 1 / 4, 3 / 8, 1 / 2, 1)]

        def gradient_within(capacity: int) -> tuple[Policy, Info]:
            batch = dense(trajectories._replace(x=found.objects(capacity)), env, config.loss == "fm", paths)
            return _gradient_on(batch._replace(node=found.node), policy, config)

        # Devices exchange numbers within the branches, so all of them take the same one.
        smallest = jnp.searchsorted(jnp.array(capacities), sharing.largest(found.total, config.devices))
        part = jax.lax.switch(smallest, [partial(gradient_within, capacity) for capacity in capacities])
        policy, opt_state, info = shared_learner_jax.update(policy, tx, opt_state, part, config)
        return policy, opt_state, buffer, info

    return iterate


def _iterate_expected(
    tx: optax.GradientTransformation, env: Env, config: GFlowNetConfig, constants: Constants
) -> Iterate:
    """The exact expectation: the networks are evaluated on every state, and nothing is sampled."""
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
    """For backward=maxent: the log number of trajectories to each object."""
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
    best objects found so far, those of this very batch included. All devices hold the same buffer."""
    if noise is None:
        return forward, buffer
    ends = []
    if constants.data is not None:
        ends.append(constants.data[(noise.data * len(constants.data)).astype(jnp.int32)])
    if buffer is not None:
        found = sharing.gather(forward.x[-1], config.devices)
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
