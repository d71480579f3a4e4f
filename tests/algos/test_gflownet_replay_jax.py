"""Trajectories built backwards, in JAX: the buffer's rule, the sampler's law, and training on mixed batches."""

from collections import Counter
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gflownet_small import SMALL, tiny

from crossfade.algos.gflownet import expected_loss_jax, training_jax
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.algos.gflownet.sampling import (
    noise_jax,
    noise_numpy,
    parents_jax,
    replay_jax,
    replay_numpy,
    rollout_jax,
)
from crossfade.envs.dag import base_numpy
from crossfade.envs.dag.ground_truth import graph_of
from crossfade.envs.dag.hypergrid.hypergrid_jax import Hypergrid
from crossfade.envs.dag.hypergrid.params import HypergridParams
from crossfade.envs.dag.registry import make
from crossfade.envs.dag.toy.params import ToyParams
from crossfade.errors import CheckpointError, UsageError
from crossfade.random import random_numpy
from crossfade.systems.gflownet.discrete_jax import System
from default_run import few_of

CAPACITY = 7


def system(**settings):
    settings = {"mode": "jax_full", "replay_capacity": CAPACITY, "layers": 1, **settings}
    return System(tiny(**settings))


# The buffer


def remembered(buffer, x, log_reward):
    """The rule in plain Python, on a list of (object, log-reward)."""
    known = {entry for entry, _ in buffer}
    for entry, value in zip(map(tuple, x.tolist()), log_reward.tolist(), strict=True):
        if entry not in known:
            known.add(entry)
            buffer = [*buffer, (entry, value)]
    return sorted(buffer, key=lambda pair: -np.round(pair[1] * 4096))[:CAPACITY]


def found_objects():
    """Batches with repeated objects, ties in reward, and rewards that differ by less than what counts."""
    rng = np.random.default_rng(0)
    values = rng.integers(-4, 4, size=(4, 4)) + 1e-9 * rng.normal(size=(4, 4))
    for i in range(12):
        x = rng.integers(0, 2 + i // 4, size=(5, 2)).astype(np.int32)
        yield x, values[tuple(x.T)]


def test_the_buffer_keeps_the_best_distinct_objects(x64):
    env, add = Hypergrid(SMALL), jax.jit(replay_jax.add)
    buffer, twin, reference = (
        replay_jax.start(env, CAPACITY, "float64"),
        replay_numpy.start(make(SMALL, "numpy"), CAPACITY, "float64"),
        [],
    )
    ever = set()
    for x, log_reward in found_objects():
        buffer, twin = add(buffer, x, log_reward), replay_numpy.add(twin, x, log_reward)
        reference = remembered(reference, x, log_reward)
        size = int(buffer.size)
        kept = list(zip(map(tuple, np.asarray(buffer.x[:size]).tolist()), buffer.log_reward[:size], strict=True))
        assert kept == reference
        for ours, theirs in zip(buffer, twin, strict=True):
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype
        ever |= set(map(tuple, x.tolist()))
    assert len(ever) > CAPACITY == len(reference)


def test_objects_are_picked_alike_or_in_proportion_to_their_reward(x64):
    share = np.array([0.5, 0.3, 0.2])
    x = np.array([[0, 1], [2, 3], [1, 0]], np.int32)
    buffer = jax.jit(replay_jax.add)(replay_jax.start(Hypergrid(SMALL), CAPACITY, "float64"), x, np.log(share))
    n = 20_000
    noise = jax.jit(lambda key: noise_jax.draw_back(key, 1, 0, n, CAPACITY, 2, "float64"))(jax.random.key(0))
    for weighted, expected in ((False, np.full(3, 1 / 3)), (True, share)):
        picked = np.asarray(replay_jax.pick(buffer, noise.pick, noise.pick_gumbel, weighted))
        twin = replay_numpy.pick(replay_numpy.Replay(*map(np.asarray, buffer)), *map(np.asarray, noise[1:3]), weighted)
        np.testing.assert_array_equal(picked, twin)
        frequency = [(picked == row).all(-1).mean() for row in x]
        assert np.abs(frequency - expected).max() < 4 * np.sqrt(0.25 / n)


def test_backward_noise_is_that_of_numpy_and_of_jax_random_bit_for_bit(x64):
    sizes = (4, 2, 3, 5, 6, "float64")
    ours = jax.jit(lambda key: noise_jax.draw_back(key, *sizes))(jax.random.key(3))
    data, pick, back = jax.random.split(jax.random.key(3), 3)
    first, second = jax.random.split(pick)
    jax_random = (
        jax.random.uniform(data, (2,)),
        jax.random.uniform(first, (3,)),
        jax.random.gumbel(second, (3, 5)),
        jax.random.gumbel(back, (4, 5, 6)),
    )
    for theirs in (jax_random, noise_numpy.draw_back(random_numpy.key(3), *sizes)):
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


# The way back


def ways_back(backward, params, x, n=4000):
    """Trajectories to x of a fresh policy, walked in the network and in a table of its P_B; and that table."""
    run = system(env=params, backward=backward, batch_size=n)
    policy = run.make_policy(run.parameters())
    policy = jax.tree.map(lambda leaf: 3 * leaf, policy)  # a fresh P_B is nearly uniform
    env, log_paths = run.env, training_jax.log_paths(run.env, run.config, run.constants)
    x = jnp.tile(jnp.array(x, jnp.int32), (n, 1))
    gumbel = jax.random.gumbel(jax.random.key(1), (env.max_steps, n, env.n_parents))

    @jax.jit
    def both(policy):
        states = env.state(jnp.arange(env.n_states))
        if log_paths is None:
            log_pb = policy.log_pb(env.observe(states), env.backward_mask(states))
        else:
            log_pb = parents_jax.max_entropy(env, states.x, log_paths)
        walked = rollout_jax.sample_back(policy, env, x, gumbel, log_paths)
        return log_pb, walked, rollout_jax.sample_back_table(log_pb, env, x, gumbel)

    return jax.tree.map(np.asarray, both(policy))


CASES = {
    "shared": ("shared", ToyParams(), (9,)),
    "learned": ("learned", SMALL, (2, 1)),
    "maxent": ("maxent", SMALL, (1, 2)),
    "fixed": ("fixed", SMALL, (3, 0)),
}


@pytest.mark.parametrize("backward, params, end", few_of(CASES, "maxent", "fixed", many=True))
def test_ways_back_have_the_probabilities_of_the_backward_policy(backward, params, end, x64):
    log_pb, walked, by_table = ways_back(backward, params, end)
    for ours, theirs in zip(walked, by_table, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    graph = graph_of(params)
    if backward == "maxent":
        exact = np.where(graph.backward_mask, exact_numpy.max_entropy_backward(graph), -1e30)
        np.testing.assert_allclose(log_pb, exact, rtol=1e-12)

    def ways(state):
        """Every way from the source to a state, as a tuple of states, with its probability under P_B."""
        if state == graph.source:
            return {(state,): 1.0}
        slots = np.flatnonzero(graph.backward_mask[state])
        return {
            (*way, state): p * np.exp(log_pb[state, slot])
            for slot in slots
            for way, p in ways(graph.parent[state, slot]).items()
        }

    env = make(params, "numpy")
    exact = ways(int(env.index(base_numpy.State(np.array(end), np.array(False)))))
    assert sum(exact.values()) == pytest.approx(1)
    states = env.index(base_numpy.State(walked.x, np.zeros(walked.x.shape[:-1], bool)))
    n = walked.valid.shape[1]
    counts = Counter(tuple(column[:length]) for column, length in zip(states.T, walked.valid.sum(0), strict=True))
    assert counts.keys() <= exact.keys()
    for way, p in exact.items():
        assert abs(counts[way] / n - p) < 5 * np.sqrt(p * (1 - p) / n) + 1e-12


def test_the_number_of_ways_may_come_from_a_formula(x64):
    class Formula(HypergridParams):
        def log_paths(self, x, xp):
            log_factorial = xp.asarray(np.cumsum(np.log(np.maximum(np.arange(9), 1))))
            return log_factorial[x.sum(-1)] - log_factorial[x].sum(-1)

    env, graph = Hypergrid(Formula(2, 5)), graph_of(HypergridParams(2, 5))
    log_pb = jax.jit(
        lambda: parents_jax.max_entropy(env, env.state(jnp.arange(25)).x, parents_jax.log_path_function(env, None))
    )()
    exact = np.where(graph.backward_mask, exact_numpy.max_entropy_backward(graph), -1e30)
    np.testing.assert_allclose(log_pb, exact, rtol=1e-12, atol=1e-14)


def test_ways_back_are_ordinary_trajectories_when_walked_forwards(x64):
    run = system(env=HypergridParams(2, 5))
    policy = run.make_policy(run.parameters())
    ends = np.array([[0, 0], [4, 4], [2, 0], [1, 3]], np.int32)
    trajectories = jax.tree.map(np.asarray, run.sample_back(policy, ends, random_numpy.key(2)))
    env, state = run.host_env, run.host_env.reset((len(ends),))
    for x, action, parent, valid in zip(*trajectories, strict=False):
        np.testing.assert_array_equal(x, state.x)
        np.testing.assert_array_equal(valid, ~state.done)
        assert (action[state.done] == env.n_actions - 1).all()
        base_numpy.check_action(env, state, action)
        after = env.step(state, action)
        moved = valid & ~after.done
        np.testing.assert_array_equal(env.unstep(after, parent).x[moved], x[moved])
        state = after
    np.testing.assert_array_equal(trajectories.x[-1], ends)
    assert state.done.all()
    assert trajectories.valid.sum(0).tolist() == [1, 9, 3, 5]

    # The terms along them: P_B of all steps before stop, which is certain.
    terms = run.terms(policy, trajectories)
    assert terms.log_pb.dtype == np.float64
    log_pb = np.asarray(
        run._log_pb(policy, env.observe(env.state(np.arange(25))), env.backward_mask(env.state(np.arange(25))))
    )
    index = env.index(base_numpy.State(trajectories.x, np.zeros(trajectories.x.shape[:-1], bool)))
    along = np.where(trajectories.valid & ~terms.stop, log_pb[index[1:], trajectories.parent], 0)
    np.testing.assert_allclose(terms.log_pb, along, atol=1e-14)


# Mixed batches

MIXED = {
    "uniform, data": {"replay_batch": 3, "data_batch": 2, "data": "all", "epsilon": 0.1},
    "weighted, maxent": {"replay_batch": 4, "replay_sampling": "weighted", "backward": "maxent", "loss": "db"},
    "fixed": {"replay_batch": 3, "backward": "fixed", "backward_logits": (0.5, -1.0), "loss": "fm"},
}


def trained(run, *chunks):
    """Losses, parameters and buffer after plain gradient descent, so that parameters tell the gradients."""
    policy, tx = run.make_policy(run.parameters()), {"policy": optax.sgd(0.01)}
    state, losses, step = (policy, {"policy": tx["policy"].init(policy)}, run.start_buffer()), [], 0
    for n in chunks:
        *state, metrics = run.train(state[0], tx, *state[1:], step, n)
        losses, step = [*losses, *np.asarray(metrics["loss"])], step + n
    return losses, state[0], state[2]


def trained_on_the_host(run, n):
    """The same by way of batches that a NumPy environment collects."""
    policy, tx = run.make_policy(run.parameters()), {"policy": optax.sgd(0.01)}
    states, buffer, losses = {"policy": tx["policy"].init(policy)}, run.start_buffer(), []
    update = eqx.filter_jit(lambda policy, states, batch: run.update(policy, tx, states, batch))
    for step in range(n):
        batch, buffer = run.collect(policy, buffer, step)
        policy, states, info = update(policy, states, batch)
        losses.append(float(info["loss"]))
    return losses, policy, buffer


@pytest.mark.parametrize(
    "case, executions",
    [
        ("uniform, data", ()),
        pytest.param("uniform, data", ("table", "unique"), marks=pytest.mark.slow),
        pytest.param("weighted, maxent", ("table", "unique"), marks=pytest.mark.slow),
        pytest.param("fixed", ("table", "unique"), marks=pytest.mark.slow),
    ],
)
def test_every_execution_trains_alike_on_mixed_batches(case, executions, x64):
    """By default over dense trajectories, compiled as a whole, and over the table, with batches made on the host."""
    settings = MIXED[case]
    losses, policy, buffer = trained(system(execution="dense", **settings), 4)
    others = {name: trained(system(execution=name, **settings), 2, 2) for name in executions}
    others["host"] = trained_on_the_host(system(execution="table", mode="jax_policy", **settings), 4)
    assert buffer.size > 0
    for other_losses, other_policy, other_buffer in others.values():
        np.testing.assert_allclose(other_losses, losses, rtol=1e-10)
        for ours, theirs in zip(jax.tree.leaves(other_policy), jax.tree.leaves(policy), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(other_buffer.x, buffer.x)
        np.testing.assert_allclose(other_buffer.log_reward, buffer.log_reward, rtol=1e-14)


def test_a_mixed_run_resumes_from_its_saved_buffer_and_compiles_once():
    run = system(replay_batch=2, dtype="float32", execution="table")
    tx = {"policy": optax.adam(0.01)}
    before = training_jax.train._cache_size()

    def go_on(state, step):
        *state, _ = run.train(state[0], tx, *state[1:], step, 3)
        return state

    policy = run.make_policy(run.parameters())
    halfway = go_on((policy, {"policy": tx["policy"].init(policy)}, run.start_buffer()), 0)
    saved = {name: np.array(array) for name, array in halfway[2]._asdict().items()}
    copied = (*jax.tree.map(jnp.array, halfway[:2]), run.start_buffer(saved))
    for ours, theirs in zip(jax.tree.leaves(go_on(halfway, 3)), jax.tree.leaves(go_on(copied, 3)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert training_jax.train._cache_size() == before + 1
    with pytest.raises(CheckpointError, match="replay_capacity"):
        system(replay_batch=2, dtype="float32", replay_capacity=8).start_buffer(saved)


def test_a_run_without_replay_and_data_has_none_of_it_in_its_program():
    def operations(**settings):
        run = system(dtype="float32", execution="table", batch_size=4, **settings)
        policy, tx = run.make_policy(run.parameters()), optax.sgd(0.1)
        state = policy, tx, tx.init(policy), run.start_buffer()
        program = jax.make_jaxpr(training_jax.train, static_argnums=(1, 4, 7, 8))
        return str(program(*state, run.env, jax.random.key(0), 0, 3, run.config, run.constants))

    assert "sort[" not in operations()
    assert "sort[" in operations(replay_batch=1)


def test_a_buffer_or_data_that_the_config_does_not_name_is_refused():
    run = system(dtype="float32", execution="table", replay_batch=2)
    policy, tx = run.make_policy(run.parameters()), optax.sgd(0.1)
    with pytest.raises(UsageError, match="replay_batch=2 with no buffer"):
        run.train(policy, {"policy": tx}, {"policy": tx.init(policy)}, None, 0, 1)


# Other backward policies and the exact objective


def test_a_fixed_backward_policy_needs_a_logit_for_each_backward_action():
    with pytest.raises(UsageError, match="expected 2 numbers"):
        run = system(backward="fixed", backward_logits=(1.0,), dtype="float32")
        run.make_policy(run.parameters())


def test_maximum_entropy_is_not_mistaken_for_another_backward_policy():
    run = system(backward="maxent", dtype="float32")
    policy, nodes = run.make_policy(run.parameters()), jax.tree.map(jnp.asarray, run.table)
    assert np.isnan(policy(*nodes[:3]).log_pb[nodes.backward_mask]).all()
    assert np.isfinite(policy(*nodes[:3], nodes.log_pb).log_pb).all()


@pytest.mark.slow
def test_the_exact_objective_is_trained_in_both_jax_modes(x64):
    whole = trained(system(objective="expected"), 3)
    hosted = trained_on_the_host(system(objective="expected", mode="jax_policy"), 3)
    np.testing.assert_allclose(whole[0], hosted[0], rtol=1e-12)
    run = system(objective="expected")
    policy = run.make_policy(run.parameters())
    value, _ = jax.jit(lambda nodes: expected_loss_jax.loss(policy, nodes, graph_of(SMALL), run.config))(run.table)
    assert whole[0][0] == pytest.approx(float(value), rel=1e-12)
    with pytest.raises(UsageError, match="objective=sampled"):
        system(objective="expected", env=HypergridParams(10, 16))


@pytest.mark.slow
def test_evaluation_samples_without_exploring(x64):
    run, key = system(epsilon=1.0, temperature=9.0), random_numpy.key(5)
    policy = jax.tree.map(lambda leaf: 9 * leaf, run.make_policy(run.parameters()))  # a fresh one is nearly random
    greedy = System(replace(run.config, epsilon=0.0, temperature=1.0))
    plain, exploring = run.sample(policy, key, 6, explore=False), run.sample(policy, key, 6)
    for ours, theirs in zip(plain, greedy.sample(policy, jax.random.key(5), 6), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (plain.action != exploring.action).any()
    assert run.sample(policy, key).valid.shape[1] == run.config.batch_size
