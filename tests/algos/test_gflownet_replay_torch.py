"""Trajectories built backwards in NumPy and torch: the buffer, the sampler, the data, P_B without parameters."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.algos.gflownet.evaluation import exact_numpy
from crossfade.algos.gflownet.sampling import dataset, parents_numpy, replay_numpy
from crossfade.algos.gflownet.sampling.path_counts import log_path_table
from crossfade.config import apply
from crossfade.envs.dag.base_numpy import State, check_action
from crossfade.envs.dag.ground_truth import graph_of
from crossfade.envs.dag.hypergrid.params import HypergridParams
from crossfade.envs.dag.registry import make, params_class
from crossfade.errors import CheckpointError, UsageError
from crossfade.random import random_numpy as random
from crossfade.systems.gflownet.discrete_torch import System

WORLDS = {
    "hypergrid": ("env=hypergrid", "env.length=4"),
    "strides": ("env=grid", "env.length=4", "env.max_increment=2", "env.max_dim_per_action=2"),
    "toy": ("env=toy",),
    "set": ("env=set", "env.n_items=5", "env.max_size=3"),
    "append": ("env=bits", "env.n_bits=8", "env.word_bits=2", "env.n_modes=2"),
    "both ends": ("env=bits", "env.n_bits=8", "env.word_bits=2", "env.n_modes=2", "env.order=prepend_append"),
    "free": ("env=bits", "env.n_bits=8", "env.word_bits=2", "env.n_modes=2", "env.order=free"),
    "bayesnet": ("env=bayesnet", "env.n_nodes=3"),
    "phylo": ("env=phylo", "env.n_species=5"),
}
SMALL = ("hidden=8", "batch_size=8", "dtype=float64")
MIXED = ("data=all", "data_batch=3", "replay_batch=4", "replay_capacity=6")


def system(*words: str) -> System:
    return System(apply(GFlowNetConfig(), (*SMALL, *words)))


def policy_of(system: System):
    return system.make_policy(system.parameters())


def grid(length: int = 3):
    return make(HypergridParams(2, length), "numpy")


# The buffer


def one_by_one(buffer: list, new: list, capacity: int) -> list:
    """The rule as one would say it: an object that is new goes in, the list is sorted, the worst falls out."""
    for x, log_reward in new:
        if x not in [known for known, _ in buffer]:
            buffer = sorted([*buffer, (x, log_reward)], key=lambda entry: -round(entry[1] * 4096))[:capacity]
    return buffer


def as_list(replay: replay_numpy.Replay) -> list:
    n = int(replay.size)
    return list(zip(map(tuple, replay.x[:n].tolist()), replay.log_reward[:n].tolist(), strict=True))


rewards = st.lists(
    st.one_of(st.sampled_from([0.0, 1e-6, 1.0, 1.0 + 1e-9, -3.0]), st.floats(-5, 5)), min_size=9, max_size=9
)
batches = st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=6), min_size=1, max_size=5)


@settings(max_examples=200, deadline=None)
@given(rewards, batches, st.integers(1, 7))
def test_the_buffer_keeps_what_a_sequential_rule_keeps(rewards, batches, capacity):
    env = grid()
    replay, expected = replay_numpy.start(env, capacity, "float64"), []
    for batch in batches:
        x, log_reward = env.state(np.array(batch)).x, np.array(rewards)[batch]
        replay = replay_numpy.add(replay, x, log_reward)
        expected = one_by_one(expected, list(zip(map(tuple, x.tolist()), log_reward.tolist(), strict=True)), capacity)
        assert as_list(replay) == expected
    assert (replay.log_reward[int(replay.size) :] == replay_numpy.EMPTY).all()
    assert (replay.x[int(replay.size) :] == env.reset().x).all()


def test_rewards_that_differ_by_rounding_do_not_change_the_order():
    env = grid()
    x = env.state(np.arange(4)).x
    log_reward = np.array([1.0, 1.0 + 1e-12, 1.0 - 1e-12, 1.01])
    kept = replay_numpy.add(replay_numpy.start(env, 3, "float64"), x, log_reward)
    assert kept.x.tolist() == x[[3, 0, 1]].tolist()
    plain = np.argsort(-log_reward, kind="stable")
    assert plain.tolist() != [3, 0, 1, 2]  # guard: without the rounding it would


def filled() -> replay_numpy.Replay:
    env = grid()
    return replay_numpy.add(
        replay_numpy.start(env, 5, "float64"), env.state(np.array([4, 7, 2])).x, np.log([4.0, 2.0, 1.0])
    )


def frequencies(picked: np.ndarray) -> np.ndarray:
    return np.bincount(grid().index(State(picked, np.zeros(len(picked), bool))), minlength=9)[[4, 7, 2]] / len(picked)


def test_objects_are_picked_alike_or_by_their_reward():
    n = 20_000
    uniform = random.uniform(random.key(0), (n,), "float64")
    gumbel = random.gumbel(random.key(1), (n, 5), "float64")
    alike = frequencies(replay_numpy.pick(filled(), uniform, gumbel[:, :0], False))
    weighted = frequencies(replay_numpy.pick(filled(), uniform, gumbel, True))
    close = lambda found, p: (np.abs(found - p) < 5 * np.sqrt(p * (1 - p) / n)).all()
    assert alike.sum() == weighted.sum() == 1  # nothing from an empty place
    assert close(alike, np.full(3, 1 / 3)) and close(weighted, np.array([4, 2, 1]) / 7)
    assert not close(alike, np.array([4, 2, 1]) / 7)


def test_the_largest_uniform_picks_the_last_object():
    found = replay_numpy.pick(filled(), np.array([np.nextafter(1.0, 0)]), np.zeros((1, 0)), False)
    assert found.tolist() == [[0, 2]]


def test_a_saved_buffer_of_another_size_is_refused():
    saved = system(*MIXED, *WORLDS["toy"]).start_buffer()._asdict()
    assert system(*MIXED, *WORLDS["toy"]).start_buffer(saved) is not None
    with pytest.raises(CheckpointError, match="replay_capacity"):
        system(*MIXED[:-1], "replay_capacity=7", *WORLDS["toy"]).start_buffer(saved)


# The sampler


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_every_backward_trajectory_walks_forward_to_its_object(world):
    ours = system(*world)
    env, policy = ours.env, policy_of(ours)
    x = ours.sample(policy, random.key(3), 40).x[-1]
    found = ours.sample_back(policy, x, random.key(4))
    assert (found.x[0] == env.reset().x).all() and (found.x[-1] == x).all()
    state = env.reset((len(x),))
    for t, (action, parent, valid) in enumerate(zip(*found[1:], strict=True)):
        assert (valid == ~state.done).all() and (state.x == found.x[t]).all()
        check_action(env, state, action)
        after = env.step(state, action)
        assert (found.x[t + 1] == after.x).all()
        stays = action == env.n_actions - 1
        assert (env.backward_mask(after)[np.arange(len(x)), parent] | stays).all()
        assert ((env.unstep(after, parent).x == state.x).all(-1) | stays).all()
        assert (action[~valid] == env.n_actions - 1).all()
        state = after
    assert state.done.all()


def ways(graph, log_pb: np.ndarray, x: int) -> dict[tuple[int, ...], float]:
    """Every way from the source to an object and its log-probability under P_B."""
    if x == graph.source:
        return {(x,): 0.0}
    return {
        (*way, x): rest + float(log_pb[x, p])
        for p in np.flatnonzero(graph.backward_mask[x])
        for way, rest in ways(graph, log_pb, int(graph.parent[x, p])).items()
    }


def log_pb_table(ours: System, policy) -> np.ndarray:
    """P_B of every state by the plain formula."""
    graph = graph_of(ours.config.env)
    if ours.config.backward == "maxent":
        return exact_numpy.max_entropy_backward(graph)
    if ours.config.backward == "uniform":
        return exact_numpy.uniform_backward(graph)
    if ours.config.backward == "fixed":
        logits = np.broadcast_to(ours.config.backward_logits, graph.backward_mask.shape)
    else:
        w = {name: p.detach().numpy() for name, p in policy.named_parameters()}
        h = ours.env.observe(ours.env.state(np.arange(ours.env.n_states)), np.float64)
        for i in range(ours.config.layers):
            h = h @ w[f"trunk.{i}.weight"].T + w[f"trunk.{i}.bias"]
            h = np.where(h > 0, h, 0.01 * h)
        logits = h @ w["backward_head.weight"].T + w["backward_head.bias"]
    logits = np.where(graph.backward_mask, logits, -np.inf)
    with np.errstate(invalid="ignore"):
        return logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)


POLICIES = {
    "shared": ("backward=shared",),
    "uniform": ("backward=uniform",),
    "maxent": ("backward=maxent",),
    "fixed": ("backward=fixed", "backward_logits=(1.0,-0.5)"),
}


def misfit(ours: System, log_pb: np.ndarray, index: int, n: int = 3000) -> float:
    """How many standard errors the frequency of some way is from its probability, at most."""
    x = np.repeat(ours.env.state(np.array([index])).x, n, axis=0)
    path = ours.sample_back(policy_of(ours), x, random.key(5)).x
    rows = ours.env.index(State(path, np.zeros(path.shape[:-1], bool))).T
    seen: dict[tuple[int, ...], int] = {}
    for row in rows.tolist():
        way = tuple(row[: row.index(index) + 1])
        seen[way] = seen.get(way, 0) + 1
    p = {way: math.exp(value) for way, value in ways(graph_of(ours.config.env), log_pb, index).items()}
    assert set(seen) <= set(p) and abs(sum(p.values()) - 1) < 1e-12
    return max(abs(seen.get(way, 0) / n - q) / math.sqrt(q * (1 - q) / n) for way, q in p.items())


@pytest.mark.parametrize("execution", ["table", "dense"])
@pytest.mark.parametrize("words", POLICIES.values(), ids=POLICIES)
def test_ways_back_are_drawn_from_the_exact_backward_policy(words, execution):
    ours = system("env=hypergrid", "env.length=4", f"execution={execution}", *words)
    index = 2 * 4 + 2  # six ways
    assert misfit(ours, log_pb_table(ours, policy_of(ours)), index) < 5


def test_another_backward_policy_would_be_noticed():
    ours = system("env=hypergrid", "env.length=4", *POLICIES["fixed"])
    assert misfit(ours, exact_numpy.uniform_backward(graph_of(ours.config.env)), 2 * 4 + 2) > 5


@pytest.mark.parametrize("words", POLICIES.values(), ids=POLICIES)
def test_terms_are_the_log_probabilities_of_the_ways(words):
    ours = system("env=hypergrid", "env.length=4", *words)
    policy, graph = policy_of(ours), graph_of(ours.config.env)
    index = np.arange(16)
    x = ours.env.state(index).x
    trajectories = ours.sample_back(policy, x, random.key(6))
    found = ours.terms(policy, trajectories)
    assert {type(array) for array in found} == {np.ndarray} and found.log_pf.dtype == np.float64
    visited = ours.env.index(State(trajectories.x, np.zeros(trajectories.x.shape[:-1], bool)))
    log_pb = log_pb_table(ours, policy)
    for row in index:
        way = tuple(visited[: int(trajectories.valid[:, row].sum()), row].tolist())
        assert found.log_pb[:, row].sum() == pytest.approx(ways(graph, log_pb, row)[way], abs=1e-12)
    assert np.allclose(found.log_reward, ours.env.log_reward(State(x, np.ones(16, bool))))


def test_evaluation_samples_the_policy_without_exploring():
    bold, plain = system("env=toy", "epsilon=1.0", "temperature=3.0"), system("env=toy")
    key = random.key(7)
    quiet = bold.sample(policy_of(bold), key, 50, explore=False)
    assert np.array_equal(quiet.action, plain.sample(policy_of(plain), key, 50).action)
    assert not np.array_equal(quiet.action, bold.sample(policy_of(bold), key, 50).action)


def test_an_object_without_a_way_back_is_refused():
    ours = system("env=hypergrid", "env.length=4")
    with pytest.raises(UsageError, match="way back"):
        ours.sample_back(policy_of(ours), np.array([[0, 9]], np.int32), random.key(0))


# The mixed batch


@pytest.mark.parametrize("collect", ["collect", "collect_one_by_one"])
def test_a_batch_holds_forward_trajectories_then_data_then_replay(collect):
    ours, alone = system("env=hypergrid", *MIXED), system("env=hypergrid")
    policy = policy_of(ours)
    batch, buffer = getattr(ours, collect)(policy, ours.start_buffer(), 4)
    forward, _ = getattr(alone, collect)(policy, None, 4)
    steps = len(forward.action)
    ends = ours.env.state(np.arange(64)).x if collect == "collect" else None
    assert batch.action.shape[1] == 8 + 3 + 4
    assert np.array_equal(batch.action[:steps, :8], forward.action)  # as if nothing else had been drawn
    assert not batch.valid[steps:, :8].any()
    if ends is not None:
        last = ends[batch.node[-1]]
        replayed, found = {tuple(x) for x in last[11:].tolist()}, {tuple(x) for x in last[:8].tolist()}
        assert replayed <= found == {tuple(x) for x in buffer.x[: int(buffer.size)].tolist()}


def test_objects_and_arrays_give_the_same_batch():
    ours = system("env=hypergrid", *MIXED, "replay_sampling=weighted")
    policy = policy_of(ours)
    one, two = ours.start_buffer(), ours.start_buffer()
    for step in range(3):
        slow, one = ours.collect_one_by_one(policy, one, step)
        quick, two = ours.collect(policy, two, step)
        steps = len(slow.action)
        assert np.array_equal(slow.action, quick.action[:steps]) and not quick.valid[steps:].any()
        assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
        assert slow.valid[-1].any()  # no longer than the longest


# Objects that are given


def test_all_means_every_object_that_may_stop():
    toy = make(params_class("toy")(), "numpy")
    assert dataset.load("all", toy)[:, 0].tolist() == [3, 4, 6, 8, 9, 10]
    assert len(dataset.load("all", grid())) == 9


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_every_object_exists_and_its_neighbours_out_of_range_do_not(world):
    ours = system(*world)
    x = ours.sample(policy_of(ours), random.key(0), 30).x[-1]
    assert dataset.exists(ours.env, x).all()
    assert not dataset.exists(ours.env, np.concatenate([x[:3] + 1000, x[:3] - 1000])).any()


def test_files_of_objects_are_read(tmp_path):
    x = np.array([[0, 2], [1, 1], [2, 0]], np.int32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "whole.npy", x.astype(np.float32))
    (tmp_path / "x.csv").write_text("first,second\n0,2\n\n1,1\n2, 0\n")
    for name in ("x.npy", "whole.npy", "x.csv"):
        found = dataset.load(str(tmp_path / name), grid())
        assert found.dtype == np.int32 and np.array_equal(found, x), name


BAD_FILES = {
    "no such file": ("nothing.npy", None, "no file"),
    "another kind": ("x.txt", "0,1\n", r"expected `all`, a .npy file or a .csv file"),
    "a word": ("x.csv", "0,1\n2,two\n", "row 2: expected 2 integers"),
    "too short": ("x.csv", "0,1\n2\n", "row 2: expected 2 integers"),
    "not whole": ("x.csv", "0,1\n1.5,2\n", "row 2: expected integers"),
    "not finite": ("x.csv", "nan,1\n", "row 1: expected integers"),
    "off the grid": ("x.csv", "0,1\n0,3\n", "row 2: expected an object"),
    "negative": ("x.csv", "0,-1\n", "row 1: expected an object"),
    "empty": ("x.csv", "", "one object of 2 integers"),
    "of objects": ("x.npy", np.array([[0, None]]), "array of integers"),
    "of words": ("x.npy", np.array([["0", "1"]]), "array of integers"),
    "flat": ("x.npy", np.array([0, 1]), "one object of 2 integers"),
    "beyond 32 bits": ("x.npy", np.array([[0, 2**40]]), "row 1: expected integers"),
}


@pytest.mark.parametrize(("name", "content", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused_with_its_row(name, content, message, tmp_path):
    path = tmp_path / name
    if isinstance(content, str):
        path.write_text(content)
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    with pytest.raises(UsageError, match=message):
        dataset.load(str(path), grid())


def test_objects_that_may_not_stop_are_refused(tmp_path):
    (tmp_path / "x.csv").write_text("3\n5\n")
    with pytest.raises(UsageError, match="row 2: expected an object that may stop"):
        dataset.load(str(tmp_path / "x.csv"), make(params_class("toy")(), "numpy"))
    (tmp_path / "x.csv").write_text("3\n11\n")
    with pytest.raises(UsageError, match="row 2: expected an object that .* can build"):
        dataset.load(str(tmp_path / "x.csv"), make(params_class("toy")(), "numpy"))


def test_all_of_too_many_is_refused():
    with pytest.raises(UsageError, match="Give a file"):
        dataset.load("all", make(params_class("set")(n_items=40, max_size=20), "numpy"))


# P_B without parameters


def log_paths(env):
    return parents_numpy.log_path_function(env, log_path_table(env))


def test_the_maximum_entropy_policy_of_a_grid_is_x_over_its_sum():
    env = make(HypergridParams(2, 5), "numpy")
    x = env.state(np.arange(1, 25)).x
    p = np.exp(parents_numpy.max_entropy(env, x, log_paths(env)))
    assert np.allclose(p, x / x.sum(-1, keepdims=True), atol=1e-14)
    assert not np.allclose(p, np.exp(exact_numpy.uniform_backward(graph_of(env.params)))[1:])


def test_a_closed_form_of_the_params_is_used(monkeypatch):
    large = make(HypergridParams(7, 20), "numpy")  # too many to list
    assert np.allclose(log_paths(grid(5))(np.array([[3, 4]])), math.log(math.comb(7, 3)))
    assert np.allclose(log_paths(large)(np.ones((1, 7), np.int32)), math.log(math.factorial(7)))
    monkeypatch.delattr(HypergridParams, "log_paths")
    assert np.allclose(log_paths(grid(5))(np.array([[3, 4]])), math.log(math.comb(7, 3)))
    with pytest.raises(UsageError, match="backward=shared, learned, uniform or fixed"):
        log_paths(large)


def test_maxent_is_not_guessed_where_it_is_not_given():
    ours = system("env=hypergrid", "env.length=4", "backward=maxent")
    policy, nodes = policy_of(ours), ours.tensors(ours.table)
    given = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask, nodes.log_pb).log_pb
    guessed = policy(nodes.observation, nodes.forward_mask, nodes.backward_mask).log_pb
    assert given.isfinite().all() and guessed[nodes.backward_mask].isnan().all()


def test_fixed_logits_must_fit_and_are_equal_by_default():
    with pytest.raises(UsageError, match="expected 2 numbers, one for each backward action"):
        policy_of(system("env=hypergrid", "backward=fixed", "backward_logits=(1.0,)"))
    loss = lambda *words: _loss(system("env=hypergrid", *words))
    assert loss("backward=fixed") == loss("backward=uniform")
    assert loss("backward=fixed", "backward_logits=(1.0,0.0)") != loss("backward=uniform")


def _loss(ours: System) -> float:
    policy = policy_of(ours)
    batch, _ = ours.collect(policy, ours.start_buffer(), 0)
    return float(ours.loss(policy, ours.tensors(batch))[0].detach())


def test_float32_runs_keep_float32_buffers():
    ours = System(replace(system("env=hypergrid", *MIXED, "replay_sampling=weighted").config, dtype="float32"))
    batch, buffer = ours.collect(policy_of(ours), ours.start_buffer(), 0)
    assert buffer.log_reward.dtype == batch.observation.dtype == np.float32
