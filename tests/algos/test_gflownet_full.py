"""Training compiled as a whole: executions, chunks, compilations, learning."""

import re
from dataclasses import replace

import jax
import numpy as np
import pytest
from gflownet_small import SMALL, started, tiny

from crossfade.algos.gflownet import learner_jax, training_jax
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.hypergrid.hypergrid_jax import Hypergrid
from crossfade.envs.dag.hypergrid.hypergrid_numpy import Hypergrid as HostHypergrid
from crossfade.envs.dag.hypergrid.params import HypergridParams
from crossfade.errors import UsageError


def trained(config, *chunks):
    """The losses of a run made in chunks of so many iterations, and the policy it ends with."""
    env = Hypergrid(config.env)
    policy, tx, opt_state = started(config, env)
    losses, step = [], 0
    for n in chunks:
        policy, opt_state, _, metrics = training_jax.train(
            policy, tx, opt_state, None, env, jax.random.key(7), step, n, config
        )
        losses, step = [*losses, *np.asarray(metrics["loss"])], step + n
    return losses, policy


@pytest.mark.slow
def test_every_execution_trains_alike_in_chunks_of_any_size(x64):
    config = tiny(epsilon=0.1, clip_norm=1.0, layers=1)
    reference, _ = trained(replace(config, execution="dense"), 12)
    assert reference[-1] != reference[0]
    for execution, chunks in [("table", (4, 4, 4)), ("unique", (12,))]:
        losses, _ = trained(replace(config, execution=execution), *chunks)
        np.testing.assert_allclose(losses, reference, rtol=1e-10)


@pytest.mark.slow
def test_repeated_calls_compile_once():
    config = tiny(dtype="float32", execution="table", batch_size=4)
    before = training_jax.train._cache_size()
    trained(config, 3, 3, 3)
    assert training_jax.train._cache_size() == before + 1


@pytest.mark.parametrize("layers, dtype", [(1, "float64"), pytest.param(2, "float32", marks=pytest.mark.slow)])
def test_table_execution_evaluates_the_networks_once_per_iteration(layers, dtype):
    with jax.enable_x64(dtype == "float64"):
        env, config = Hypergrid(SMALL), tiny(dtype=dtype, layers=layers, execution="table")
        policy, tx, opt_state = started(config, env)
        lowered = training_jax.train.lower(policy, tx, opt_state, None, env, jax.random.key(0), 0, 3, config)
        program = lowered.compile().as_text()
    products = len(re.findall(r"= f\d\d\S* dot\(", program))
    linear = layers + 2  # the trunk and two heads: forward, back to all inputs but the observation, weights' gradients
    assert products == linear + (linear - 1) + linear


def test_an_unresolved_execution_is_refused():
    with pytest.raises(UsageError, match="table, dense, unique"):
        trained(tiny(dtype="float32"), 1)


def test_trajectory_balance_learns_the_target():
    params = HypergridParams(2, 8)
    config = tiny(env=params, hidden=64, batch_size=64, dtype="float32", execution="table", lr=3e-3)
    graph, env = enumerate_states(HostHypergrid(params)), Hypergrid(params)

    table = jax.jit(lambda policy: learner_jax.log_pf_table(policy, env))

    def total_variation(policy):
        log_pf = np.asarray(table(policy), np.float64)
        return exact_numpy.total_variation(graph.target, exact_numpy.terminating_distribution(graph, log_pf))

    assert total_variation(started(config, env)[0]) > 0.3
    _, policy = trained(config, 1000)
    assert total_variation(policy) < 0.1
    assert policy.log_z.sum() == pytest.approx(graph.log_z, abs=0.1)
