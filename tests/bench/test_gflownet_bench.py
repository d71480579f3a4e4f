"""The bench of GFlowNets counts rightly, compares like with like, and judges as it says."""

import numpy as np
import pytest
import torch

from crossfade.algos.gflownet import initial_parameters
from crossfade.algos.gflownet.batch import Trajectories
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.bench import flops
from crossfade.config import apply
from crossfade.envs.dag.registry import make
from crossfade.random import random_numpy as random
from crossfade.systems.gflownet.bench import LAST, PROMISES, SETTINGS, promises, show
from crossfade.systems.gflownet.bench_worker import CONTENDERS, EarlyStop, distinct, jax_full_nodes, longest, visited
from crossfade.systems.gflownet.discrete_torch import System
from crossfade.trainers.system import Snapshot
from crossfade.trainers.torch_pure import TorchPureTrainer

TINY = ("env=hypergrid", "env.n_dim=2", "env.length=4", "hidden=8", "batch_size=6", "mode=torch_pure")


@pytest.fixture
def system():
    return System(apply(GFlowNetConfig(), (*TINY, "execution=dense")))


def test_operations_are_those_of_the_layers():
    config = apply(GFlowNetConfig(), TINY)
    shapes = initial_parameters.shapes(config, make(config.env, "numpy"))
    # observation 8, hidden 8, 8, heads of 3 and 2: forward and weights for all, inputs for all but the first
    assert flops.per_node(shapes | {"trunk.0.weight": (8, 9)}, 9) == 4 * 72 + 6 * (64 + 24 + 16)


def test_the_peak_is_measured_in_both_frameworks(monkeypatch):
    monkeypatch.setattr(flops, "SIZES", (64,))
    assert all(rate > 1e6 for rate in flops.matrix_peak(0.02).values())


def test_states_are_counted_without_padding_and_repetition():
    x = np.array([[[0], [0]], [[1], [1]], [[2], [1]], [[2], [1]]])  # 0 1 2 stop, and 0 1 stop, then padding
    valid = np.array([[True, True], [True, True], [True, False]])
    trajectories = Trajectories(x, np.zeros((3, 2), int), np.zeros((3, 2), int), valid)
    assert (distinct(trajectories), longest(trajectories)) == (3, 3)


def test_what_contenders_evaluate_is_ordered(system):
    trajectories = system.sample(system.make_policy(system.parameters()), random.key(0))
    nodes = {name: contender.nodes(trajectories, system.env) for name, contender in CONTENDERS.items()}
    assert nodes["torch_pure, early stop"] <= nodes["torch"] <= nodes["torch_pure"] == nodes["jax_full, plain scan"]
    assert nodes["jax_full"] == jax_full_nodes(trajectories, system.env) == system.env.n_states
    assert nodes["torch_pure, early stop"] == len(visited(trajectories, system.env).observation)


def test_early_stop_is_the_same_algorithm(system, monkeypatch):
    """Equal losses of both compiled baselines, not compiled here: that would take longer than all other tests."""
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    trainers = [kind(system, Snapshot(system.parameters()), 0) for kind in (TorchPureTrainer, EarlyStop)]
    padded, early = (trainer.run(0, 5)["loss"] for trainer in trainers)
    np.testing.assert_allclose(early, padded, rtol=1e-5)


def record(its: dict[str, float]) -> dict:
    figures = {"its_low": 1.0, "its_high": 2.0, "cpu_ms": 1.0, "wall_ms": 1.0, "compile_s": 0.1, "rss_mb": 1.0}
    rows = {
        name: {"its": rate, "rounds": [{"wall": noise / rate} for noise in (1.0, 1.1, 3.0)], **figures}
        for name, rate in its.items()
    }
    for row in rows.values():
        row |= {"padding": 0.25, "peak_share": 0.5}
    work = {"mean_length": 3.0, "longest": 5.0, "distinct": 7.0, "flops": 1e9}
    peak = {"torch": 1e11, "jax": 1e11}
    return {"work": work, "peak_flops": peak, "contenders": rows, "threads": 2, "load": 0.0, "peak_rss_mb": 1.0}


@pytest.mark.parametrize(("scan", "kept"), [(50.0, True), (51.0, False)])
def test_a_promise_is_a_ratio_of_speeds_within_the_rounds(scan, kept, capsys):
    fast = {"torch": 1.0, "torch_pure": 2.0, "torch_pure, early stop": 3.0, "torch_pure, table": 4.0}
    fast |= {"jax_full, plain scan": scan, "jax_full": 100.0}
    settings = {name: record(fast) for name in SETTINGS}
    rows = promises(settings)
    assert len(rows) == len(PROMISES)
    assert [row["kept"] for row in rows] == [True] * (len(rows) - 1) + [kept]
    show({"session": {"cores": 2, "versions": {}}, "settings": settings, "promises": rows})
    printed = capsys.readouterr().out
    assert f"{'PASS' if kept else 'FAIL'}  {LAST}: jax_full is" in printed and "50.0%" in printed
