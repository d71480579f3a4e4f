"""Five modes, one system: equal from one seed, resumed exactly, switched in the middle of a run."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crossfade import checkpoint
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.config import apply
from crossfade.errors import NoCounterpart
from crossfade.registry import find
from crossfade.run import RunDir
from crossfade.run.settings import MODES
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.training import train

SMALL = ("env=hypergrid", "hidden=16", "batch_size=8", "steps=8", "chunk=4", "log_every=4", "checkpoint_every=4")


def config(mode: str, *words: str) -> GFlowNetConfig:
    return apply(GFlowNetConfig(), (*SMALL, "dtype=float64", *words, f"mode={mode}"))


def modes(*names: str) -> list:
    return list(names or MODES)


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torch_pure as plain torch: torch.compile cannot trace the type checks of the test run (see the test in a process
    of its own below)."""
    monkeypatch.setattr("crossfade.trainers.torch_pure.shutil.which", lambda name: None)


@pytest.mark.slow
def test_compiled_torch_pure_is_the_same_system_as_torch(tmp_path):
    words = [*SMALL, "--modes", "torch", "torch_pure", "--json", "--runs-dir", str(tmp_path)]
    command = [sys.executable, "-m", "crossfade", "climb", "gflownet", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)[1]["parity"]["verdict"] in ("EQUAL", "ROUNDING")


def finished(run: RunDir) -> dict[str, np.ndarray]:
    bundle = checkpoint.load(run.checkpoints, side="numpy")
    moments = {f"{n}.{s}": a for n, slots in bundle.optimizer.moments.items() for s, a in slots.items()}
    return {**bundle.params, **moments}


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    with precision(config("torch")):
        trainer = make_trainer(find("gflownet"), config("torch"))
        return {**trainer.run(0, 8), **trainer.snapshot().parameters}


@pytest.mark.parametrize("mode", modes("torch_pure", "jax_minimal", "jax_policy", "jax_full"))
def test_every_mode_is_the_same_system_as_torch(mode, reference):
    with precision(config(mode)):
        trainer = make_trainer(find("gflownet"), config(mode))
        found = {**trainer.run(0, 8), **trainer.snapshot().parameters}
    for name, expected in reference.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("execution", ["dense", "unique"])
@pytest.mark.parametrize("mode", ["jax_minimal", "jax_policy", "jax_full"])
def test_every_execution_is_the_same_system(mode, execution, reference):
    chosen = config(mode, f"execution={execution}")
    with precision(chosen):
        trainer = make_trainer(find("gflownet"), chosen)
        found = {**trainer.run(0, 8), **trainer.snapshot().parameters}
    for name, expected in reference.items():
        np.testing.assert_allclose(found[name], expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_clipping_that_step_cannot_do_is_refused():
    chosen = config("jax_minimal", "clip_norm=1.0")
    with precision(chosen), pytest.raises(NoCounterpart, match="clip_norm"):
        make_trainer(find("gflownet"), chosen)


@pytest.mark.parametrize("mode", modes("torch_pure", "jax_policy", "jax_full"))
def test_every_mode_clips_and_decays_as_torch_does(mode):
    runs = []
    for chosen in (config(name, "clip_norm=0.1", "lr_period=3", "lr_gamma=0.5") for name in ("torch", mode)):
        with precision(chosen):
            trainer = make_trainer(find("gflownet"), chosen)
            runs.append({**trainer.run(0, 8), **trainer.snapshot().parameters})
    for name, expected in runs[0].items():
        np.testing.assert_allclose(runs[1][name], expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_another_seed_gives_another_run(reference):
    trainer = make_trainer(find("gflownet"), config("torch", "seed=1"))
    assert not np.allclose(trainer.run(0, 8)["loss"], reference["loss"])


@pytest.mark.parametrize("mode", modes())
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(mode, tmp_path):
    whole = config(mode)
    with RunDir.create(tmp_path, "gflownet", whole.parts, 0, whole) as run:
        train(find("gflownet"), whole, run, quiet=True)
    with RunDir.create(tmp_path, "gflownet", whole.parts, 0, whole) as halves:
        train(find("gflownet"), replace(whole, steps=4), halves, quiet=True)
        train(find("gflownet"), whole, halves, resume=True, quiet=True)
    expected, found = finished(run), finished(halves)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("second", modes("torch_pure", "jax_minimal", "jax_policy", "jax_full"))
def test_a_run_may_change_its_mode_in_the_middle(second, tmp_path):
    first = config("torch")
    with RunDir.create(tmp_path, "gflownet", first.parts, 0, first) as run:
        train(find("gflownet"), first, run, quiet=True)
    with RunDir.create(tmp_path, "gflownet", first.parts, 0, first) as mixed:
        train(find("gflownet"), replace(first, steps=4), mixed, quiet=True)
        train(find("gflownet"), config(second), mixed, resume=True, quiet=True)
    expected, found = finished(run), finished(mixed)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_run_resumes_bit_for_bit(mode, tmp_path):
    steps = 4000 if mode == "jax_full" else 800
    replay = ["replay_batch=4", "replay_capacity=20"]
    words = [*SMALL[:3], *replay, f"mode={mode}", f"steps={steps}", "chunk=20", "checkpoint_every=200", "log_every=20"]
    command = [sys.executable, "-m", "crossfade", "train", "gflownet", *words, "--quiet", "--runs-dir"]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, capture_output=True)
    killed = subprocess.Popen(
        [*command, str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not (found := list((tmp_path / "killed").glob("*/*/checkpoints/0*"))):
        assert killed.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    run = found[0].parent.parent
    assert not (run / "done").exists()
    resume = [sys.executable, "-m", "crossfade", "train", "--resume", str(run), "--quiet"]
    subprocess.run(resume, check=True, capture_output=True)
    whole = next((tmp_path / "whole").glob("*/*"))
    assert rows(run) == rows(whole)
    expected, found = finished(RunDir(whole)), finished(RunDir(run))
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def rows(run: Path) -> list[dict]:
    kept = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "wall" and not k.startswith("time/")} for row in kept]
