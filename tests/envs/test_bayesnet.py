"""Bayesian-network structures: closures, counts, scores against dense formulas, data."""

import itertools
from math import lgamma, log, pi

import numpy as np
import pytest

from crossfade.envs.dag.bayesnet import dags, scores
from crossfade.envs.dag.bayesnet.params import BayesNetParams
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.registry import make
from crossfade.errors import UsageError


def is_acyclic(adjacency):
    return not np.trace(sum(np.linalg.matrix_power(adjacency, k) for k in range(1, len(adjacency) + 1)))


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_all_acyclic_graphs_are_found(d):
    graphs = dags.every(d)
    assert len(graphs) == dags.COUNT[d]
    assert len(np.unique(dags.code(graphs))) == len(graphs)
    assert all(is_acyclic(graph) for graph in graphs[:: max(1, len(graphs) // 500)])


def test_closure_says_which_edge_would_close_a_cycle():
    for graph in dags.every(4)[::7]:
        closure = dags.closure(graph)
        for i, j in itertools.permutations(range(4), 2):
            if not graph[i, j]:
                more = graph.copy()
                more[i, j] = 1
                assert is_acyclic(more) == (closure[i, j] == 0)


def dense_linear_gaussian(data, node, parents, variance, noise):
    """The density of the n-dimensional normal distribution, written out."""
    x = data[:, parents]
    covariance = noise * np.eye(len(data)) + variance * x @ x.T
    residual = data[:, node]
    square = residual @ np.linalg.solve(covariance, residual)
    return -(len(data) * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + square) / 2


@pytest.mark.parametrize("parents", [[], [0], [0, 2], [3, 1, 0]])
def test_linear_gaussian_score_is_the_normal_density(parents):
    data = np.random.default_rng(0).normal(size=(12, 5))
    ours = scores.linear_gaussian(data, 4, parents, weight_variance=0.7, noise=0.3)
    assert ours == pytest.approx(dense_linear_gaussian(data, 4, parents, 0.7, 0.3), abs=1e-10)


def test_bge_of_one_node_is_the_student_marginal():
    """Without parents the model is a normal of unknown mean and precision: its evidence, predictive by predictive."""
    data = np.random.default_rng(1).normal(size=(6, 3)) + 0.5
    alpha_mu, t = 1.0, 0.5
    shape, rate, mean, weight, total = 1.5, t / 2, 0.0, alpha_mu, 0.0
    for value in data[:, 1]:
        scale = rate * (weight + 1) / (weight * shape)
        nu = 2 * shape
        total += lgamma((nu + 1) / 2) - lgamma(nu / 2) - log(nu * pi * scale) / 2
        total -= (nu + 1) / 2 * np.log1p((value - mean) ** 2 / (nu * scale))
        rate += weight * (value - mean) ** 2 / (2 * (weight + 1))
        mean, weight, shape = (weight * mean + value) / (weight + 1), weight + 1, shape + 0.5
    assert scores.bge(data, 1, []) == pytest.approx(total, abs=1e-10)


def test_bge_is_equal_for_equivalent_graphs():
    data = np.random.default_rng(0).normal(size=(30, 3)) @ np.triu(np.ones((3, 3)))
    chains = [  # 0 -> 1 -> 2, 0 <- 1 -> 2, 0 <- 1 <- 2 imply the same independences
        [[], [0], [1]],
        [[1], [], [1]],
        [[1], [2], []],
    ]
    totals = [sum(scores.bge(data, node, parents) for node, parents in enumerate(graph)) for graph in chains]
    assert totals == pytest.approx([totals[0]] * 3, abs=1e-9)
    collider = sum(scores.bge(data, node, parents) for node, parents in enumerate([[], [0, 2], []]))
    assert abs(collider - totals[0]) > 1


@pytest.mark.parametrize("score", ["bge", "linear_gaussian"])
def test_log_reward_is_the_score_against_the_empty_graph(score):
    params = BayesNetParams(n_nodes=3, score=score)
    env = make(params, "numpy")
    states = env.state(np.arange(env.n_states))

    def total(adjacency):
        if score == "bge":
            return sum(scores.bge(params.data, j, np.flatnonzero(adjacency[:, j]).tolist()) for j in range(3))
        return sum(scores.linear_gaussian(params.data, j, np.flatnonzero(adjacency[:, j]).tolist()) for j in range(3))

    adjacency = states.x[:, :9].reshape(-1, 3, 3)
    expected = [total(a) - total(np.zeros((3, 3))) for a in adjacency]
    np.testing.assert_allclose(env.log_reward(states), expected, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 2, 3])  # in seed 1 two ways cancel: a graph with fewer edges explains the data
def test_with_enough_samples_the_posterior_finds_the_edges_behind_the_data(seed):
    params = BayesNetParams(n_nodes=4, n_samples=50_000, seed=seed)
    graph = enumerate_states(make(params, "numpy"))
    best = params.graphs[np.argmax(graph.target), :16].reshape(4, 4)
    skeleton = (params.graph + params.graph.T) > 0
    np.testing.assert_array_equal((best + best.T) > 0, skeleton)


def test_columns_are_not_in_causal_order():
    upper = [np.tril(BayesNetParams(n_nodes=6, seed=seed).graph).sum() for seed in range(10)]
    assert sum(upper) > 0
    assert all(is_acyclic(BayesNetParams(n_nodes=6, seed=seed).graph) for seed in range(10))


def test_data_can_be_the_users(tmp_path):
    data = np.random.default_rng(0).normal(size=(5, 3))
    for header in ("", "speed,load,heat\n"):
        text = header + "\n".join(",".join(map(repr, row)) for row in data.tolist())
        (tmp_path / "d.csv").write_text(text)
        np.testing.assert_array_equal(BayesNetParams(n_nodes=3, file=str(tmp_path / "d.csv")).data, data)
    with pytest.raises(UsageError, match="sample 1: expected n_nodes=4 numbers"):
        BayesNetParams(n_nodes=4, file=str(tmp_path / "d.csv"))
    (tmp_path / "bad.csv").write_text("1,2,3\n4,x,6\n")
    with pytest.raises(UsageError, match="sample 2: .* got '4,x,6'"):
        BayesNetParams(n_nodes=3, file=str(tmp_path / "bad.csv"))
    (tmp_path / "nan.csv").write_text("1,nan,3\n4,5,6\n")
    with pytest.raises(UsageError, match="1 numbers that are not finite"):
        BayesNetParams(n_nodes=3, file=str(tmp_path / "nan.csv"))
    with pytest.raises(UsageError, match="expected a CSV file of data .* found none"):
        BayesNetParams(file=str(tmp_path / "none.csv"))
    with pytest.raises(UsageError, match="n_nodes: expected an integer from 2 to 12"):
        BayesNetParams(n_nodes=13)
