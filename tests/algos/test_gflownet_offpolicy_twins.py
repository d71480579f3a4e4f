"""Both halves build the same trajectories backwards: the same bits, the same buffer, the same run in every mode."""

from dataclasses import replace
from functools import cache
from itertools import product
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
import pytest

from crossfade import checkpoint
from crossfade.algos.gflownet import losses_jax, losses_torch
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.algos.gflownet.sampling import noise_jax, noise_numpy, replay_jax, replay_numpy
from crossfade.bridge.libraries import named_leaves
from crossfade.config import apply
from crossfade.envs.dag.hypergrid.params import HypergridParams
from crossfade.envs.dag.registry import make
from crossfade.random import random_numpy as random
from crossfade.registry import find
from crossfade.run import RunDir
from crossfade.run.settings import MODES
from crossfade.systems.gflownet.discrete_jax import System as JaxSystem
from crossfade.systems.gflownet.discrete_torch import System as TorchSystem
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.system import Snapshot
from crossfade.trainers.training import train
from default_run import few, few_of

SMALL = ("hidden=8", "batch_size=6", "dtype=float64")
GRID = ("env=hypergrid", "env.length=4")
MIXED = ("data=all", "data_batch=3", "replay_batch=4", "replay_capacity=5")
CASES = {
    "uniform, maxent": ("replay_sampling=uniform", "backward=maxent"),
    "weighted, fixed": ("replay_sampling=weighted", "backward=fixed", "backward_logits=(0.5,-1.0)"),
    "weighted, shared": ("replay_sampling=weighted", "backward=shared"),
}
FIXED = CASES["weighted, fixed"]
FAULTY = (*CASES["weighted, shared"], "legacy_double_step=true", "clip_norm=0.5")


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torch_pure as plain torch: torch.compile cannot trace the type checks of the test run."""
    monkeypatch.setattr("crossfade.trainers.torch_pure.find_compiler", lambda: ("", "not asked for"))


def config(*words: str) -> GFlowNetConfig:
    return apply(GFlowNetConfig(), (*SMALL, *words))


def halves(*words: str):
    """Both systems and their policies with the same parameters."""
    ours, theirs = TorchSystem(config(*words)), JaxSystem(config(*words))
    return ours, ours.make_policy(ours.parameters()), theirs, theirs.make_policy(ours.parameters())


def equal(one, other) -> bool:
    return all(np.array_equal(np.asarray(a), np.asarray(b)) for a, b in zip(one, other, strict=True))


# Noise, buffer and ways back


def test_the_noise_of_ways_back_has_the_same_bits(x64):
    sizes, key = (7, 3, 4, 5, 2, "float64"), random.fold_in(random.key(3), 2)
    ours = noise_numpy.draw_back(key, *sizes)
    theirs = jax.jit(lambda words: noise_jax.draw_back(jax.random.wrap_key_data(words), *sizes))(key)
    assert equal(ours, theirs)
    assert not equal(ours, noise_numpy.draw_back(random.key(3), *sizes))


def test_the_buffers_stay_equal(x64):
    params = HypergridParams(2, 8)
    ours = replay_numpy.start(make(params, "numpy"), 6, "float64")
    theirs = replay_jax.start(make(params, "jax"), 6, "float64")
    add, pick = jax.jit(replay_jax.add), jax.jit(replay_jax.pick, static_argnames="weighted")
    rng = np.random.default_rng(0)
    log_reward = rng.choice([0.0, 1e-9, 0.5, 2.0, -1.0], 64) + rng.choice([0.0, 1e-9, 0.1], 64)  # ties, near ties
    for step in range(40):
        index = rng.integers(0, 64, 5)
        x = np.stack(np.divmod(index, 8), -1).astype(np.int32)
        ours = replay_numpy.add(ours, x, log_reward[index])
        theirs = add(theirs, x, log_reward[index])
        assert equal(ours, theirs), step
        uniform, gumbel = rng.uniform(size=9), rng.gumbel(size=(9, 6))
        for weighted in (False, True):
            found = replay_numpy.pick(ours, uniform, gumbel, weighted)
            assert np.array_equal(found, pick(theirs, uniform, gumbel, weighted=weighted)), step
    late = replay_numpy.add(ours, np.array([[7, 7]], np.int32), np.array([9.0]))
    assert not equal(late, theirs)


BITS = ("env=bits", "env.n_bits=8", "env.word_bits=2", "env.n_modes=2", "env.order=prepend_append")
WORLDS = [
    pytest.param((*GRID, "backward=maxent"), id="hypergrid", marks=pytest.mark.slow),
    pytest.param(BITS, id="bits"),
    pytest.param(("env=toy", "execution=dense"), id="toy", marks=pytest.mark.slow),
    pytest.param(("env=phylo", "env.n_species=4", "backward=learned"), id="phylo", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("words", WORLDS)
def test_ways_back_and_their_terms_are_the_same(words, x64):
    ours, policy, theirs, model = halves(*words)
    x = ours.sample(policy, random.key(1), 20, explore=False).x[-1]
    back, other = (system.sample_back(p, x, random.key(2)) for system, p in ((ours, policy), (theirs, model)))
    moves = back.valid & (back.action != ours.env.n_actions - 1)
    assert equal((back.x, back.action, back.valid), (other.x, other.action, other.valid))
    assert np.array_equal(back.parent[moves], np.asarray(other.parent)[moves])
    again = ours.sample_back(policy, x, random.key(3))
    assert not np.array_equal(back.action, again.action)
    for name, a, b in zip(
        losses_torch.Terms._fields, ours.terms(policy, back), theirs.terms(model, other), strict=True
    ):
        assert np.abs(a * 1.0 - b * 1.0).max() <= 1e-12, name


# Loss and gradient


@pytest.mark.parametrize("words", few_of(CASES, "uniform, maxent", "weighted, shared"))
def test_a_mixed_batch_has_the_same_loss_and_gradient(words, x64):
    ours, policy, theirs, model = halves(*GRID, *MIXED, *words)
    batch, buffer = ours.collect(policy, ours.start_buffer(), 0)
    loss, _ = ours.loss(policy, ours.tensors(batch))
    loss.backward()
    both = eqx.filter_jit(jax.value_and_grad(losses_jax.loss, has_aux=True), donate="none")
    (value, _), gradient = both(model, batch, ours.config)
    found = {name: np.asarray(leaf) for name, leaf in named_leaves(gradient).items()}
    assert abs(float(loss.detach()) - float(value)) <= 1e-12
    for name, p in policy.named_parameters():
        assert p.grad is not None and np.abs(p.grad.numpy() - found[name]).max() <= 1e-12, name
    swapped = batch._replace(node=np.roll(batch.node, 1, axis=1))  # guard: other ways for the same actions
    assert abs(float(both(model, swapped, ours.config)[0][0]) - float(value)) > 1e-3


# Runs


class Run(NamedTuple):
    """Thirty iterations: their metrics, the state half-way and the state at the end."""

    metrics: dict[str, np.ndarray]
    half: Snapshot
    end: Snapshot


def second_half(mode: str, words: tuple[str, ...], half: Snapshot) -> tuple[dict[str, np.ndarray], Snapshot]:
    settings = config(*GRID, *MIXED, *words, f"mode={mode}")
    with precision(settings):
        trainer = make_trainer(find("gflownet"), settings, half, 15)
        return trainer.run(15, 15), trainer.snapshot()


@cache
def whole(mode: str, words: tuple[str, ...]) -> Run:
    settings = config(*GRID, *MIXED, *words, f"mode={mode}")
    with precision(settings):
        trainer = make_trainer(find("gflownet"), settings)
        first, half = trainer.run(0, 15), trainer.snapshot()
        second = trainer.run(15, 15)
        metrics = {name: np.concatenate([first[name], second[name]]) for name in first}
        return Run(metrics, half, trainer.snapshot())


def leaves(metrics: dict[str, np.ndarray], state: Snapshot) -> dict[str, np.ndarray]:
    moments = {
        f"{slot} of {n}": a for n, slots in state.optimizers["policy"].moments.items() for slot, a in slots.items()
    }
    return {**metrics, **state.parameters, **moments}


def largest_difference(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> float:
    assert set(one) == set(other)
    return max(np.abs(one[name] - other[name]).max() / max(1.0, np.abs(one[name]).max()) for name in one)


def same_buffer(one: Snapshot, other: Snapshot) -> bool:
    assert one.buffer is not None and other.buffer is not None
    return equal(one.buffer.values(), other.buffer.values())


ABOVE = [mode for mode in MODES if mode != "torch"]
QUICK = ("torch_pure", "jax_policy", "jax_full")  # the contract has runs in all modes
RUNS = [
    pytest.param(
        mode,
        words,
        marks=() if case == "weighted, fixed" and mode in QUICK else pytest.mark.slow,
        id=f"{mode}, {case}",
    )
    for mode in ABOVE
    for case, words in CASES.items()
]


@pytest.mark.parametrize(("mode", "words"), RUNS)
def test_thirty_iterations_from_one_key_are_the_same_in_every_mode(mode, words):
    expected, found = whole("torch", words), whole(mode, words)
    assert largest_difference(leaves(expected.metrics, expected.end), leaves(found.metrics, found.end)) <= 1e-9
    assert same_buffer(expected.end, found.end) and same_buffer(expected.half, found.half)


def test_what_is_replayed_and_how_makes_a_difference():
    runs = [whole("torch", words).metrics["loss"] for words in CASES.values()]
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(runs, runs[1:] + runs[:1], strict=True))
    buffer = whole("torch", FIXED).half.buffer
    assert buffer is not None and int(buffer["size"]) == 5  # full, so that places are fought for


@pytest.mark.parametrize("mode", few(MODES, "torch", *QUICK))
def test_a_run_with_a_buffer_resumes_bit_for_bit(mode):
    run = whole(mode, FIXED)
    metrics, end = second_half(mode, FIXED, run.half)
    expected = {name: values[15:] for name, values in run.metrics.items()}
    assert largest_difference(leaves(expected, run.end), leaves(metrics, end)) == 0
    assert same_buffer(run.end, end)


SWITCHES = {
    f"{first} to {second}": (first, second) for first, second in [*product(["torch"], ABOVE), ("jax_full", "torch")]
}


@pytest.mark.parametrize(
    ("first", "second"), few_of(SWITCHES, *(name for name in SWITCHES if "minimal" not in name), many=True)
)
def test_a_run_with_a_buffer_may_change_its_mode_in_the_middle(first, second):
    metrics, end = second_half(second, FIXED, whole(first, FIXED).half)
    run = whole("torch", FIXED)
    expected = {name: values[15:] for name, values in run.metrics.items()}
    assert largest_difference(leaves(expected, run.end), leaves(metrics, end)) <= 1e-9
    assert same_buffer(run.end, end)


def test_a_run_that_loses_its_buffer_is_another_run():
    run = whole("torch", FIXED)
    metrics, _ = second_half("torch", FIXED, run.half._replace(buffer=None))
    assert np.abs(metrics["loss"] - run.metrics["loss"][15:]).max() > 1e-3


def test_a_checkpoint_holds_the_buffer(tmp_path):
    words = (*GRID, *MIXED, *FIXED, "steps=30", "chunk=15", "checkpoint_every=15", "log_every=15")
    settings = config(*words, "mode=torch_pure")
    with RunDir.create(tmp_path, "gflownet", settings.parts, 0, settings) as run:
        train(find("gflownet"), replace(settings, steps=15), run, quiet=True)
        train(find("gflownet"), replace(settings, mode="jax_full"), run, resume=True, quiet=True)
    found, expected = checkpoint.load(run.checkpoints, side="numpy"), whole("torch", FIXED).end
    assert expected.buffer is not None and equal(found.replay["buffer"].values(), expected.buffer.values())
    assert largest_difference(expected.parameters, found.params) <= 1e-9


# The published faults


OTHERS = ["torch", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("torch_pure", "jax_full"))]


@pytest.mark.parametrize("second", OTHERS)
def test_a_trunk_stepped_twice_survives_a_change_of_mode(second):
    run = whole("jax_policy", FAULTY)
    metrics, end = second_half(second, FAULTY, run.half)
    expected = {name: values[15:] for name, values in run.metrics.items()}
    assert largest_difference(leaves(expected, run.end), leaves(metrics, end)) <= 1e-9
    right = whole("torch", CASES["weighted, shared"]).metrics["loss"][15:]
    assert np.abs(metrics["loss"] - right).max() > 1e-3


@pytest.mark.parametrize("fault", ["legacy_finished_mask=true", "legacy_untied_trunk=true"])
def test_faulty_policies_have_the_same_loss_and_gradient(fault, x64):
    ours, policy, _, model = halves(*GRID, fault)
    batch, _ = ours.collect(policy, None, 0)
    loss, _ = ours.loss(policy, ours.tensors(batch))
    loss.backward()
    (value, _), gradient = eqx.filter_jit(jax.value_and_grad(losses_jax.loss, has_aux=True))(model, batch, ours.config)
    found = {name: np.asarray(leaf) for name, leaf in named_leaves(gradient).items()}
    assert abs(float(loss.detach()) - float(value)) <= 1e-12
    for name, p in policy.named_parameters():
        assert p.grad is not None and np.abs(p.grad.numpy() - found[name]).max() <= 1e-12, name
