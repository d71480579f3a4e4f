"""Trajectories shared among devices: the same run."""

from dataclasses import replace
from functools import wraps

import jax
import numpy as np
import pytest
from gflownet_small import tiny

from crossfade.algos.gflownet import training_jax
from crossfade.algos.gflownet.continuous import training_jax as continuous_training_jax
from crossfade.envs.dag.cube.params import CubeParams
from crossfade.envs.dag.torus.params import TorusParams
from crossfade.errors import UsageError
from crossfade.optim import sharing_jax as sharing
from crossfade.registry import find
from crossfade.systems.gflownet.population_jax import Population
from crossfade.trainers.making import make_trainer

MIXED = {"replay_batch": 4, "replay_capacity": 6, "data_batch": 8, "data": "all"}
ALL_OF_IT = "tb, table, replay and data"
VARIANTS = {
    ALL_OF_IT: {"loss": "tb", "execution": "table", **MIXED},
    "vargrad, dense": {"loss": "vargrad", "execution": "dense", "epsilon": 0.1},
    "db, distinct states": {"loss": "db", "execution": "unique", "clip_norm": 0.1},
    "mdb, weighted replay": {"loss": "mdb", "execution": "table", "replay_batch": 4, "replay_sampling": "weighted"},
    "fm, table": {"loss": "fm", "execution": "table", "backward": "uniform"},
    "cube": {"env": CubeParams(), "loss": "db", "epsilon": 0.3},
    "torus": {"env": TorusParams(), "loss": "vargrad", "components": 2},
}


def trained(changes, devices, n=3):
    """Metrics, parameters and buffer of a run in two chunks, and its trainer."""
    trainer = make_trainer(find("gflownet"), tiny(mode="jax_full", layers=1, **changes, devices=devices))
    chunks = [trainer.run(0, n), trainer.run(n, n)]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}, trainer


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        pytest.param(ALL_OF_IT, (2,), id=ALL_OF_IT),
        *(pytest.param(n, (2, 4) if n == ALL_OF_IT else (2,), marks=pytest.mark.slow) for n in VARIANTS),
    ],
)
def test_one_seed_gives_the_same_run_on_any_number_of_devices(name, numbers, x64):
    train = (continuous_training_jax if name in ("cube", "torus") else training_jax).train
    changes = VARIANTS[name]
    metrics, alone = trained(changes, 1)
    for devices in numbers:
        compiled = train._cache_size()
        found, shared = trained(changes, devices)
        assert train._cache_size() == compiled + 1
        for quantity, column in metrics.items():
            np.testing.assert_allclose(found[quantity], column, rtol=1e-10, atol=1e-12, err_msg=quantity)
        ours, theirs = alone.snapshot(), shared.snapshot()
        for parameter, array in ours.parameters.items():
            np.testing.assert_allclose(theirs.parameters[parameter], array, rtol=0, atol=1e-10)
        if ours.buffer is not None:
            assert ours.buffer["size"] > 0
            np.testing.assert_array_equal(theirs.buffer["x"], ours.buffer["x"])
        assert len(jax.tree.leaves(shared.policy)[0].sharding.device_set) == devices
    if name == ALL_OF_IT:
        assert alone.evaluate().metrics == pytest.approx(shared.evaluate().metrics, rel=1e-9)


@pytest.mark.slow
def test_a_torus_is_judged_alike_on_two_devices(x64):
    changes = VARIANTS["torus"]
    found = [trained(changes, devices)[1].evaluate().metrics for devices in (1, 2)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)


BREAKS = {
    "gradients that are not added up": ("total", lambda tree, devices: tree),
    "every device with the first trajectories": (
        "part",
        lambda tree, devices, axis=0: jax.tree.map(
            lambda x: jax.lax.slice_in_dim(x, 0, x.shape[axis] // devices, axis=axis), tree
        ),
    ),
    "a mean over one device alone": ("mean", lambda tree, devices: tree),
}


@pytest.mark.slow
@pytest.mark.parametrize("broken", BREAKS)
def test_a_broken_exchange_is_noticed(broken, x64, monkeypatch):
    changes = {"loss": "vargrad", "execution": "table", "seed": 3}
    _, alone = trained(changes, 1)
    monkeypatch.setattr(sharing, *BREAKS[broken])
    whole = training_jax.train.__wrapped__
    own = wraps(whole)(lambda *given: whole(*given))  # jit keeps one program for one function, broken or not
    monkeypatch.setattr(training_jax, "train", jax.jit(own, static_argnames=("tx", "env", "n", "config")))
    _, shared = trained(changes, 2)
    ours, theirs = alone.snapshot().parameters, shared.snapshot().parameters
    assert max(np.abs(ours[name] - theirs[name]).max() for name in ours) > 1e-6


WRONG = {
    "uneven batch": ({"batch_size": 6, "devices": 4}, "a divisor of batch_size = 6, got 4"),
    "uneven replay": ({"replay_batch": 3, "devices": 2}, "a divisor of replay_batch = 3, got 2"),
    "uneven data": ({"data_batch": 5, "data": "all", "devices": 2}, "a divisor of data_batch = 5, got 2"),
    "nothing sampled": ({"objective": "expected", "devices": 2}, "expected 1 with objective=expected"),
    "uneven points": ({"env": CubeParams(), "batch_size": 6, "devices": 4}, "a divisor of batch_size = 6, got 4"),
    "more than there are": ({"batch_size": 16, "devices": 8}, "at most 4, .* got 8.*JAX_NUM_CPU_DEVICES=8"),
}


@pytest.mark.parametrize("changes, message", WRONG.values(), ids=WRONG)
def test_what_cannot_be_shared_is_refused(changes, message):
    assert jax.device_count() == 4  # JAX makes its devices when it is first used, and no more after that
    with pytest.raises(UsageError, match=message):
        make_trainer(find("gflownet"), tiny(**{"mode": "jax_full", "dtype": "float32", **changes}))


def test_a_population_has_one_device():
    config = tiny(mode="jax_full", dtype="float32", devices=2)
    with pytest.raises(UsageError, match="trained on one device, got devices=2"):
        Population([config, replace(config, seed=1)])
