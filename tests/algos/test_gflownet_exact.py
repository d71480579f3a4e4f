"""Exact evaluation: the constants of the published targets, metrics, noise floors, gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from crossfade.algos.gflownet.evaluation import exact_jax, exact_numpy
from crossfade.algos.gflownet.evaluation.noise_floor import jsd_floor, total_variation_floor
from crossfade.envs.dag.enumeration import enumerate_states
from crossfade.envs.dag.grid.grid_numpy import Grid
from crossfade.envs.dag.grid.params import GridParams
from crossfade.envs.dag.hypergrid.hypergrid_numpy import Hypergrid
from crossfade.envs.dag.hypergrid.params import HypergridParams

# n_dim, length, (r0, r1, r2), mode cells, Z, log Z
HYPERGRIDS = [
    (2, 8, (0.1, 0.5, 2), 4, 22.4, 3.10906096),
    (4, 8, (0.1, 0.5, 2), 16, 569.6, 6.34493436),
    (4, 8, (0.01, 0.5, 2), 16, 200.96, 5.30310588),
    (2, 16, (0.1, 0.5, 2), 4, 65.6, 4.18357570),
    (4, 16, (0.1, 0.5, 2), 16, 8633.6, 9.06341685),
    (4, 32, (0.1, 0.5, 2), 1296, 140217.6, 11.85095078),
    (2, 8, (1e-3, 0.5, 2), 4, 16.064, 2.77658074),
    (2, 20, (1e-3, 0.5, 2), 16, 82.4, 4.41158544),
    (4, 20, (1e-3, 0.5, 2), 256, 5672.0, 8.64329707),
    (4, 20, (1e-4, 1.0, 3), 256, 10784.0, 9.28581883),
]
# n_dim, length, Z, log Z
CORNERS = [
    (2, 16, 192.269037, 5.25889563),
    (2, 20, 301.374631, 5.70835411),
    (2, 32, 773.207482, 6.65054742),
    (2, 64, 3091.689599, 8.03647302),
    (3, 16, 2666.023831, 7.88834344),
    (4, 16, 36967.382651, 10.51779125),
]


def hypergrid(n_dim, length, constants):
    return HypergridParams(n_dim, length, "corners", *map(float, constants))


def every_log_reward(env):
    return env.log_reward(env.state(np.arange(env.n_states)))


@pytest.mark.parametrize("n_dim, length, constants, modes, z, log_z", HYPERGRIDS)
def test_hypergrid_normalisers(n_dim, length, constants, modes, z, log_z):
    params = hypergrid(n_dim, length, constants)
    if length**n_dim <= 65_536:
        log_reward = every_log_reward(Hypergrid(params))
        cells = (log_reward == log_reward.max()).sum()
        total = np.exp(log_reward).sum()
    else:  # by the product structure: each region is a power of its extent along one dimension
        wide, inner = ((params.region >= least).sum() ** n_dim for least in (1, 2))
        cells = inner
        total = np.dot(params.constants, (length**n_dim, wide, inner))
    assert cells == modes
    assert total == pytest.approx(z, rel=1e-12)
    assert np.log(total) == pytest.approx(log_z, abs=1e-8)


@pytest.mark.parametrize("n_dim, length, z, log_z", CORNERS)
def test_gaussian_corner_normalisers(n_dim, length, z, log_z):
    total = np.exp(every_log_reward(Grid(GridParams(n_dim, length)))).sum()
    assert total == pytest.approx(z, abs=1e-6)
    assert np.log(total) == pytest.approx(log_z, abs=1e-8)


def test_mean_rewards_under_the_target():
    graph = enumerate_states(Hypergrid(hypergrid(2, 8, (0.1, 0.5, 2))))
    assert exact_numpy.mean_reward(graph.target, graph.log_reward) == pytest.approx(1.421429, abs=1e-6)
    for constants, mean in [((1e-3, 0.5, 2), 0.713537), ((1e-4, 1.0, 3), 1.283583)]:
        reward = np.exp(every_log_reward(Hypergrid(hypergrid(4, 20, constants))))
        assert (reward**2).sum() / reward.sum() == pytest.approx(mean, abs=1e-6)


def test_max_entropy_backward_on_the_grid_is_the_share_of_a_coordinate():
    graph = enumerate_states(Hypergrid(HypergridParams(3, 4)))
    x = Hypergrid(HypergridParams(3, 4)).state(np.arange(64)).x
    share = np.log(x, where=x > 0, out=np.full(x.shape, -np.inf)) - np.log(np.maximum(x.sum(-1, keepdims=True), 1))
    np.testing.assert_allclose(exact_numpy.max_entropy_backward(graph), share, atol=1e-12)


def test_a_large_grid_is_evaluated_in_float32():
    graph = enumerate_states(Hypergrid(hypergrid(4, 8, (0.1, 0.5, 2))))

    @jax.jit
    def optimum():
        log_pf = exact_jax.optimal_policy(graph, exact_jax.max_entropy_backward(graph))[1]
        return exact_jax.terminating_distribution(graph, log_pf)

    p = optimum()
    assert p.dtype == jnp.float32
    assert exact_jax.total_variation(p, jnp.asarray(graph.target)) < 1e-5


@pytest.fixture(scope="module")
def small():
    return enumerate_states(Hypergrid(HypergridParams(2, 4)))


def test_metrics_agree_with_each_other_and_between_twins(small, x64):
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(16))
    ours = exact_numpy.metrics(small, p, 2.5)
    theirs = exact_jax.metrics(small, jnp.asarray(p), jnp.asarray(2.5))
    assert ours.keys() == theirs.keys()
    for key in ours:
        assert theirs[key] == pytest.approx(ours[key], abs=1e-14)
    assert ours["l1"] == pytest.approx(2 * ours["tv"])
    assert ours["log_z_error"] == pytest.approx(abs(2.5 - small.log_z))
    same = exact_numpy.metrics(small, small.target, small.log_z)
    assert same["tv"] == same["jsd"] == same["kl"] == same["log_z_error"] == 0


@pytest.mark.parametrize("exact, xp", [(exact_numpy, np), (exact_jax, jnp)], ids=["numpy", "jax"])
def test_metrics_at_the_edges(exact, xp):
    p, q = xp.array([0.5, 0.5, 0.0]), xp.array([0.0, 0.0, 1.0])
    assert exact.total_variation(p, q) == 1
    assert exact.jsd(p, q) == pytest.approx(np.log(2), rel=1e-6)
    assert exact.kl(p, q) == np.inf
    assert exact.kl(q, q) == 0
    modes = xp.array([True, True, False])
    assert exact.mode_coverage(xp.array([3, 0, 7]), modes) == 0.5


def test_the_distribution_is_differentiable(small, x64):
    logits = jnp.asarray(np.random.default_rng(0).normal(size=small.forward_mask.shape))

    @jax.jit
    def divergence(logits):
        log_pf = jax.nn.log_softmax(jnp.where(small.forward_mask, logits, -1e9))
        return exact_jax.kl(jnp.asarray(small.target), exact_jax.terminating_distribution(small, log_pf))

    gradient = jax.grad(divergence)(logits)
    direction = np.random.default_rng(1).normal(size=logits.shape)
    step = 1e-6
    slope = (divergence(logits + step * direction) - divergence(logits - step * direction)) / (2 * step)
    assert (gradient * direction).sum() == pytest.approx(float(slope), rel=1e-6)
    assert (np.asarray(gradient)[~small.forward_mask] == 0).all()


def test_flows_have_finite_gradients(small, x64):
    @jax.jit
    def log_z(logits):
        log_pb = jax.nn.log_softmax(jnp.where(small.backward_mask, logits, -1e9))
        return exact_jax.optimal_policy(small, log_pb)[0][small.source]

    gradient = jax.grad(log_z)(jnp.zeros(small.backward_mask.shape))
    assert np.abs(gradient).max() < 1e-12  # Z does not depend on the backward policy


def sampled_floor(p, n, metric, draws=400):
    counts = np.random.default_rng(0).multinomial(n, p, size=draws)
    values = [metric(p, row / n) for row in counts]
    return np.mean(values), np.std(values) / np.sqrt(draws)


@pytest.mark.parametrize("n", [10, 1000])
@pytest.mark.parametrize(
    "floor, metric", [(total_variation_floor, exact_numpy.total_variation), (jsd_floor, exact_numpy.jsd)]
)
def test_noise_floor_is_the_mean_score_of_a_perfect_sampler(small, n, floor, metric):
    mean, error = sampled_floor(small.target, n, metric)
    assert abs(floor(small.target, n) - mean) < 4 * error


def test_noise_floors_of_the_published_settings():
    corners = np.exp(every_log_reward(Grid(GridParams(2, 16))))
    p = corners / corners.sum()
    assert total_variation_floor(p, 1_000) == pytest.approx(0.159, abs=0.002)
    assert total_variation_floor(p, 200_000) == pytest.approx(0.011, abs=0.001)
    assert jsd_floor(p, 1_000) == pytest.approx(0.0297, abs=0.003)
    assert total_variation_floor(np.array([1.0, 0.0]), 10) == jsd_floor(np.array([1.0, 0.0]), 10) == 0
