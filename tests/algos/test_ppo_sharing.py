"""Environments shared among devices and minibatches cut into pieces: the same run."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache, partial, wraps

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppo_toy import DATA, WORLD, actions, rates, settings, small, started

from crossfade import checkpoint
from crossfade.algos.ppo import learner_jax, train_jax
from crossfade.algos.ppo.architecture import Architecture
from crossfade.algos.ppo.batch import Minibatch, taken
from crossfade.algos.ppo.network_jax import ActorCritic
from crossfade.cli import main
from crossfade.config import apply
from crossfade.errors import UsageError
from crossfade.nn.layers_jax import RowsLinear, apply as apply_layer, linear
from crossfade.optim import sharing_jax as sharing
from crossfade.registry import find
from crossfade.systems.trading.config import TradingConfig
from crossfade.trainers.making import make_trainer
from default_run import few_of, few_pairs

TRADING = (
    "mode=jax_full",
    "dtype=float64",
    "n_envs=8",
    "n_steps=16",
    "epochs=3",
    "minibatches=2",
    "hidden=8",
    "days=2",
    "eval_days=1",
    "env.window=3",
    "drawdown=300",
    "max_bars=7",
    "share_gradients=true",
)


def walked(config, n=4):
    """The metrics and the end of a run in the toy world."""
    policy, tx, opt_state, carry = started(config)
    policy, opt_state, carry = sharing.place((policy, opt_state, carry), config.devices, train_jax.PLACES)
    *end, metrics = train_jax.train(
        policy, tx, opt_state, carry, WORLD, DATA, settings(n), rates(config, 0, n), jax.random.key(7), 0, config
    )
    return jax.device_get(metrics), jax.device_get(end)


alone = cache(walked)
"""The same run for every test that compares another one with it."""


def differ(one, other) -> float:
    """The largest difference of two trees."""
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return max(float(np.abs(np.asarray(a, float) - np.asarray(b, float)).max()) for a, b in pairs)


VARIANTS = {
    "plain": {},
    "epochs that devices cannot share evenly": {"epochs": 3},
    "a stop by divergence": {"target_kl": 1e-4, "lr": 0.05},
    "nothing normalised": {"normalize_advantages": False, "normalize_observations": False},
    "masked truncation": {"truncation": "mask"},
    "segments": {"segments": True, "advantage": "lambda_return", "truncation": "mask", "join_first": True},
}


@pytest.mark.parametrize("changes", few_of(VARIANTS, "a stop by divergence"))
@pytest.mark.parametrize("devices, shared", few_pairs([(2, True), (2, False), (4, True), (4, False)], (2, True)))
def test_one_seed_gives_the_same_run_on_any_number_of_devices(devices, shared, changes, x64):
    config = small(n_envs=8, minibatches=2, **changes)
    metrics, end = alone(config)
    shared = shared and not config.segments  # which are taken whole
    found, same_end = walked(replace(config, devices=devices, share_gradients=shared))
    assert metrics["episodes"].sum() > 0
    for name, column in metrics.items():
        np.testing.assert_allclose(found[name], column, rtol=1e-9, atol=1e-12, err_msg=name)
    assert differ(end, same_end) < 1e-10
    for a, b in zip(end[2].state, same_end[2].state, strict=True):
        np.testing.assert_array_equal(a, b)
    if "target_kl" in changes:
        assert metrics["gradient_steps"].min() < config.epochs * config.minibatches


BREAKS = {
    "gradients that are not brought together": ("total", lambda tree, devices: tree),
    "every device with the first part of a minibatch": (
        "part",
        lambda tree, devices, axis=0: _first(tree, devices, axis),
    ),
    "statistics of one device alone": ("gather_list", lambda tree, devices: [tree] * devices),
}


def _first(tree, devices, axis):
    return jax.tree.map(lambda x: jax.lax.slice_in_dim(x, 0, x.shape[axis] // devices, axis=axis), tree)


@pytest.mark.parametrize("name, broken", few_of(BREAKS, "gradients that are not brought together", many=True))
def test_a_broken_exchange_is_noticed(name, broken, x64, monkeypatch):
    config = small(n_envs=8, minibatches=2, **VARIANTS["a stop by divergence"])
    _, end = alone(config)
    monkeypatch.setattr(sharing, name, broken)
    whole = train_jax.train.__wrapped__
    own = wraps(whole)(lambda *given: whole(*given))  # jit keeps one program for one function, broken or not
    monkeypatch.setattr(train_jax, "train", jax.jit(own, static_argnames=("tx", "world", "config")))
    _, other = walked(replace(config, devices=2, share_gradients=True))
    assert differ(end, other) > 1e-6


def test_gradient_steps_are_shared_where_that_saves_more_than_a_meeting():
    policy = lambda hidden: ActorCritic(44, actions(small()), Architecture((hidden, hidden)))
    shares = lambda hidden, size, **changes: learner_jax._shares_gradients(
        policy(hidden), size, small(n_envs=8, n_steps=12, devices=2, **changes)
    )
    assert not shares(64, 160) and shares(64, 8192) and shares(512, 160)
    assert not shares(64, 8191)  # which two devices cannot halve
    assert shares(64, 160, share_gradients=True) and not shares(64, 8192, share_gradients=False)
    assert not sharing.pays(10**12, 1)


def test_parts_are_gathered_along_any_axis_and_of_any_type():
    """In one message or in several: `SMALL` bytes are between these."""
    tree = {
        "bits": np.arange(24).reshape(4, 6) % 3 == 0,
        "counts": np.arange(12, dtype=np.int32).reshape(2, 6),
        "numbers": np.arange(48, dtype=np.float32).reshape(2, 6, 4),
        "many": np.arange(6 * 2**18, dtype=np.float32).reshape(1, 6, 2**18),
        "none": None,
    }
    assert tree["many"].nbytes // 2 > sharing.SMALL > tree["numbers"].nbytes
    columns, whole = jax.sharding.PartitionSpec(None, sharing.AXIS), sharing.EVERYWHERE
    gather = sharing.spread(lambda tree: sharing.gather(tree, 2, axis=1), 2, (columns,), whole)
    found = jax.device_get(jax.jit(gather)(tree))
    for name, array in tree.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    messages = str(jax.make_jaxpr(gather)(tree)).count("all_gather[")
    assert messages == 4  # one for each type, and one for the large array


@pytest.mark.slow
def test_minibatches_that_devices_cannot_divide_are_taken_whole(x64):
    config = small(n_envs=8, minibatches=16)
    metrics, end = alone(config)
    found, same_end = walked(replace(config, devices=2))
    np.testing.assert_allclose(found["loss"], metrics["loss"], rtol=1e-9, atol=1e-12)
    assert differ(end, same_end) < 1e-10


@pytest.mark.slow
def test_trading_is_the_same_on_two_devices(x64):
    alone, shared = (make_trainer(find("trading"), apply(TradingConfig(), (*TRADING, f"devices={n}"))) for n in (1, 2))
    for step in range(0, 6, 2):
        one, two = alone.run(step, 2), shared.run(step, 2)
        for name, column in one.items():
            np.testing.assert_allclose(two[name], column, rtol=1e-9, atol=1e-12, err_msg=name)
    ours, theirs = alone.snapshot(), shared.snapshot()
    for name, parameter in ours.parameters.items():
        np.testing.assert_allclose(theirs.parameters[name], parameter, rtol=1e-9, atol=1e-12)
    for name, column in ours.buffer["state"].items():
        np.testing.assert_array_equal(theirs.buffer["state"][name], column)
    assert len(shared.buffer.state.t.sharding.device_set) == 2
    evaluated = [trainer.evaluate().metrics for trainer in (alone, shared)]
    assert evaluated[0] == pytest.approx(evaluated[1], rel=1e-9, nan_ok=True)


WRONG = {
    "mode=torch": (("mode=torch", "devices=2"), "expected 1 in mode=torch, got 2"),
    "none": (("devices=0",), "devices: expected an integer from 1 to 2.31 - 1, got 0"),
    "uneven environments": (("n_envs=6", "devices=4"), "a divisor of n_envs = 6, got 4"),
    "uneven minibatches": (
        ("n_envs=4", "n_steps=1", "minibatches=2", "devices=4", "share_gradients=true"),
        "minibatches = 2, got 4",
    ),
}


@pytest.mark.parametrize("words, told", WRONG.values(), ids=WRONG)
def test_what_cannot_be_shared_is_refused(words, told):
    with pytest.raises(UsageError, match=told):
        apply(TradingConfig(), words)


def test_more_devices_than_there_are_is_refused_with_the_remedy():
    assert jax.device_count() == 4  # JAX makes its devices when it is first used, and no more after that
    with pytest.raises(UsageError, match="at most 4, .* got 8.*JAX_NUM_CPU_DEVICES=8"):
        make_trainer(find("trading"), apply(TradingConfig(), (*TRADING, "devices=8")))


@pytest.mark.slow
def test_a_run_of_its_own_makes_its_devices_and_is_resumed_exactly(tmp_path):
    """A fresh process has one device until it is asked for more."""
    free = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    words = [
        *TRADING,
        "schedule=6",
        "chunk=2",
        "checkpoint_every=2",
        "log_every=2",
        "eval_every=0",
        "devices=2",
        "--quiet",
    ]

    def call(*more: str) -> None:
        subprocess.run([sys.executable, "-m", "crossfade", "train", *more], check=True, env=free, capture_output=True)

    assert main(["train", "trading", *words, "steps=6", "--runs-dir", str(tmp_path / "whole")]) == 0
    call("trading", *words, "steps=4", "--runs-dir", str(tmp_path / "cut"))
    cut, whole = (next((tmp_path / name / "trading").iterdir()) for name in ("cut", "whole"))
    call("--resume", str(cut), "steps=6", "--quiet")
    found, expected = (checkpoint.load(run / "checkpoints", side="numpy").params for run in (cut, whole))
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_minibatch_in_pieces_gives_the_gradient_of_the_whole(x64, monkeypatch):
    config = small(clip_norm=None)
    policy, tx, opt_state, _ = started(config)
    rng = np.random.default_rng(0)
    mask = np.ones((96, 3), bool)
    columns = rng.normal(size=(96, 3)), mask, rng.integers(0, 3, 96), -rng.random(96), *rng.normal(size=(3, 96))
    steps = Minibatch(*map(jnp.asarray, columns))
    minibatch = partial(taken, steps)
    given = minibatch, jnp.arange(96), jnp.array(0.1), actions(config), config
    step = lambda: jax.jit(lambda *state: learner_jax.update(state[0], tx, state[1], *given))(policy, opt_state)
    whole, _, told = step()
    for pieces in (2, 3, 8):
        monkeypatch.setattr(learner_jax, "_pieces", lambda minibatch, index, devices, n=pieces: n)
        after, _, info = step()
        assert differ(after, whole) < 1e-12 and differ(info, told) < 1e-12


def test_pieces_fit_the_cache_of_the_cores_a_device_has(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    seen = lambda width: lambda index: Minibatch(jnp.zeros((len(index), width), "float32"), *[None] * 6)
    pieces = lambda n, devices, width=256: learner_jax._pieces(seen(width), jnp.zeros(n, jnp.int32), devices)
    assert learner_jax._CACHE == 2**20  # 1024 rows of 256 numbers
    assert [pieces(n, 2) for n in (64, 1024, 2048, 3000, 8192)] == [1, 1, 2, 3, 8]
    assert pieces(8192, 1) == 4  # the caches of both cores
    assert pieces(2053, 2) == 1  # a prime number of rows: no crumbs
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert pieces(8192, 2) == 1


@pytest.mark.parametrize("shape", [(7, 5), (2, 3, 5), (5,)])
def test_the_faster_gradient_of_a_layer_is_the_usual_one(shape, x64):
    rng = np.random.default_rng(0)
    make = lambda like: jnp.asarray(rng.normal(size=like.shape))
    layer, x = jax.tree.map(make, linear(5, 4, RowsLinear)), jnp.asarray(rng.normal(size=shape))
    outputs = jnp.asarray(rng.normal(size=(*shape[:-1], 4)))
    gradients = lambda apply: jax.grad(lambda layer, x: jnp.vdot(outputs, apply(layer, x)), (0, 1))(layer, x)
    assert differ(gradients(RowsLinear.__call__), gradients(apply_layer)) < 1e-13
