"""For every environment that can be enumerated: exact evaluation equals brute force, and the optimum samples R / Z."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_cases import ENUMERABLE, QUICK, name

from crossfade.algos.gflownet.evaluation import exact_jax, exact_numpy
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.registry import ENVS, make
from default_run import few

MOST_TRAJECTORIES = 30_000


@cache
def graph_of(params):
    return enumerate_states(make(params, "numpy"))


def random_policy(mask, seed=0):
    """Log-probabilities of a policy with random logits."""
    logits = np.where(mask, np.random.default_rng(seed).normal(size=mask.shape), -np.inf)
    some = mask.any(-1, keepdims=True)
    total = np.logaddexp.reduce(np.where(some, logits, 0), axis=-1, keepdims=True)
    return np.where(mask, logits - total, -np.inf)


def brute_force(env, log_pf):
    """p_T by walking every single trajectory with `env.step`, and their number."""
    state, log_p = env.reset((1,)), np.zeros(1)
    p, trajectories = np.zeros(env.n_states), 0
    while len(log_p):
        row, action = np.nonzero(env.forward_mask(state))
        log_p = log_p[row] + log_pf[env.index(state)[row], action]
        state = env.step(type(state)(state.x[row], state.done[row]), action)
        np.add.at(p, env.index(state)[state.done], np.exp(log_p[state.done]))
        trajectories += state.done.sum()
        state, log_p = type(state)(state.x[~state.done], state.done[~state.done]), log_p[~state.done]
    return p, trajectories


def n_trajectories(params):
    graph = graph_of(params)
    return np.exp(exact_numpy.log_path_counts(graph))[graph.forward_mask[:, -1]].sum()


SMALL = [params for params in ENUMERABLE if n_trajectories(params) <= MOST_TRAJECTORIES]


def test_every_environment_has_a_small_case():
    small = {type(params).__name__ for params in SMALL}
    known = {f"{entry.name}Params" for entry in ENVS.values()}
    assert known - small == set()


@pytest.mark.parametrize("params", SMALL, ids=name)
def test_dynamic_programming_equals_brute_force(params):
    graph = graph_of(params)
    log_pf = random_policy(graph.forward_mask)
    p, trajectories = brute_force(make(params, "numpy"), log_pf)
    np.testing.assert_allclose(exact_numpy.terminating_distribution(graph, log_pf), p, rtol=0, atol=1e-14)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert trajectories == round(n_trajectories(params))


@pytest.mark.parametrize("params", ENUMERABLE, ids=name)
def test_the_longest_trajectory_takes_max_steps(params):
    assert graph_of(params).level.max() + 1 == params.max_steps


@pytest.mark.parametrize("params", ENUMERABLE, ids=name)
def test_parents_and_children_are_the_same_edges(params):
    graph = graph_of(params)
    child, backward = np.nonzero(graph.backward_mask)
    rows = np.stack([graph.parent[child, backward], graph.redo[child, backward], child, backward], axis=1)
    np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(graph.edges, axis=0))
    assert len(rows) == len(graph.edges)
    assert (graph.level[graph.edges[:, 0]] < graph.level[graph.edges[:, 2]]).all()


@pytest.mark.parametrize("params", ENUMERABLE, ids=name)
@pytest.mark.parametrize("backward", ["uniform", "max_entropy", "random"])
def test_the_optimum_samples_the_target(params, backward):
    graph = graph_of(params)
    log_pb = {
        "uniform": lambda: exact_numpy.uniform_backward(graph),
        "max_entropy": lambda: exact_numpy.max_entropy_backward(graph),
        "random": lambda: random_policy(graph.backward_mask),
    }[backward]()
    log_flow, log_pf = exact_numpy.optimal_policy(graph, log_pb)
    np.testing.assert_allclose(np.exp(log_pf).sum(-1), 1, rtol=0, atol=1e-12)
    assert log_flow[graph.source] == pytest.approx(graph.log_z, abs=1e-11)
    np.testing.assert_allclose(exact_numpy.terminating_distribution(graph, log_pf), graph.target, rtol=0, atol=1e-12)


@pytest.mark.parametrize("params", few(ENUMERABLE, *QUICK[::3]), ids=name)
def test_exact_twins_are_equal(params, x64):
    graph = graph_of(params)
    log_pf, log_pb = random_policy(graph.forward_mask), random_policy(graph.backward_mask)

    @jax.jit
    def theirs(log_pf, log_pb):
        return (
            exact_jax.terminating_distribution(graph, log_pf),
            *exact_jax.optimal_policy(graph, log_pb),
            exact_jax.max_entropy_backward(graph),
        )

    ours = (
        exact_numpy.terminating_distribution(graph, log_pf),
        *exact_numpy.optimal_policy(graph, log_pb),
        exact_numpy.max_entropy_backward(graph),
    )
    for a, b in zip(ours, theirs(jnp.asarray(log_pf), jnp.asarray(log_pb)), strict=True):
        np.testing.assert_allclose(b, a, rtol=0, atol=1e-12)
