"""The bench of the bridge compares like with like, and judges as it says."""

import itertools

import numpy as np
import pytest

from crossfade.bench.bridge import (
    ACCELERATED,
    ACCELERATED_EPOCH,
    EPOCH,
    LARGE,
    PROMISES,
    SMALL,
    STEP,
    promises,
    show,
)
from crossfade.bench.bridge_contenders import Contenders

CONTENDERS = ("torch eager", "torch eager, fused Adam", "JAX by hand", STEP, ACCELERATED)


@pytest.mark.slow
def test_contenders_do_the_same_work():
    """Equal losses over the same batches; `torch.compile` takes too long to compile for a test."""
    makers = Contenders((3, 5, 2), 4).makers()
    losses = {name: [run() for run in itertools.repeat(makers[name](), 5)] for name in CONTENDERS}
    for name in CONTENDERS:
        np.testing.assert_allclose(losses[name], losses["torch eager"], rtol=1e-5, err_msg=name)
    assert len(set(losses["torch eager"])) == 5


def process(threads: int, eager: float, step: float, epoch: float) -> dict:
    def figures(us: float) -> dict:
        turns = [{"median_us": us * noise} for noise in (1.0, 1.1, 3.0)]
        times = {"median_us": us, "spread_us": [us, us], "min_us": us, "cpu_us": us}
        return {"rounds": turns, **times, "first_call_s": 0.1, "rss_mb": 1.0}

    accelerated = {ACCELERATED: step, ACCELERATED_EPOCH: epoch}
    contenders = {"torch eager": eager, "JAX by hand": step, STEP: step, EPOCH: epoch, **accelerated}
    nets = {net: {name: figures(us) for name, us in contenders.items()} for net in (SMALL, LARGE)}
    nets[SMALL]["torch.compile, whole step"] = {"unavailable": "no compiler"}
    return {"threads": threads, "nets": nets}


@pytest.mark.parametrize(("step", "kept"), [(100.0, True), (101.0, False)])
def test_a_promise_is_a_ratio_within_the_rounds(step, kept):
    rows = promises([process(1, eager=400.0, step=step, epoch=20.0)])
    assert [row["kept"] for row in rows] == [kept, True, True, True, True] * 2
    assert rows[0]["ratio"] == pytest.approx(400.0 / step)


def test_every_process_on_two_threads_is_judged(capsys):
    processes = [process(2, 400.0, step, 30.0) for step in (100.0, 100.0, 500.0)]
    rows = promises(processes)
    on_two = [promise for promise in PROMISES if 2 in promise[-1]]
    assert len(rows) == 3 * len(on_two) and sum(not row["kept"] for row in rows) == 4  # step and accelerate, both nets
    machine, left_out = {"cpu": "some CPU", "cpus": 2}, ["3 threads: only 2 CPUs here"]
    show({"machine": machine, "versions": {}, "left_out": left_out, "processes": processes, "promises": rows})
    printed = capsys.readouterr().out
    assert "2 of 3" in printed and ": no compiler" in printed and "left out: 3 threads" in printed
