"""Ctrl-C ends what goes on from run to run: it says what is done, and what was under way can be gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from crossfade import checkpoint
from crossfade.cli import main
from crossfade.registry import systems
from crossfade.trainers import training

STEPS = 150


def start(words: list[str], folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "crossfade", *words, "--runs-dir", str(folder)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


def wait_for(count: int, pattern: str, folder: Path, process: subprocess.Popen) -> list[Path]:
    """The first `count` runs under the folder whose name matches, once each of them has logged something."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        found = sorted(path.parent for path in folder.glob(f"{pattern}/metrics.jsonl") if path.stat().st_size)
        if len(found) == count:
            return found
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"no {count} runs logged anything: {process.communicate()}")


def wait_for_handler(process: subprocess.Popen) -> None:
    """Until the process catches SIGTERM, which Python by itself does not: from then on it stops between chunks."""
    deadline, status = time.monotonic() + 120, Path(f"/proc/{process.pid}/status")
    while time.monotonic() < deadline and process.poll() is None:
        caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.02)
    process.kill()
    raise AssertionError(f"no handler of signals: {process.communicate()}")


def rows(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_ctrl_c_ends_a_climb_and_keeps_what_is_climbed(tmp_path):
    small = [word for word in systems()["gflownet"].tiny if not word.startswith(("steps", "chunk"))]
    words = [
        *small,
        f"steps={STEPS}",
        "chunk=1",
        "log_every=1",
        "--updates",
        "2",
        "--modes",
        "torch",
        "jax_policy",
        "jax_full",
    ]
    process = start(["climb", "gflownet", *words], tmp_path)
    (run,) = wait_for(1, "*-jax_policy-*", tmp_path / "gflownet", process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err
    (below,) = (tmp_path / "gflownet").glob("*-torch-*")
    assert not list((tmp_path / "gflownet").glob("*-jax_full-*"))
    assert f"climbed: torch. See what is done: crossfade report {below}" in err
    assert f"go on with the run under way: crossfade train --resume {run}" in err
    reached = checkpoint.load(run / "checkpoints", side="numpy").step
    assert 0 < reached == rows(run)[-1]["step"] < STEPS and len(rows(below)) == STEPS


@pytest.fixture
def interrupted(monkeypatch):
    """Makes the nth training stop as Ctrl-C would make it."""

    def at(n: int) -> None:
        began, run_chunks = [], training.run_chunks

        def chunks(*args, **options):
            began.append(1)
            if len(began) == n:
                signal.raise_signal(signal.SIGINT)
            return run_chunks(*args, **options)

        monkeypatch.setattr(training, "run_chunks", chunks)

    return at


@pytest.mark.slow
def test_ctrl_c_ends_a_walk_and_keeps_the_folds_that_are_done(tmp_path):
    small = [word for word in systems()["trading"].tiny if not word.startswith(("days", "steps", "chunk"))]
    words = [*small, "mode=jax_policy", "steps=60", "chunk=1", "log_every=1", "folds=3", "days=12", "--resamples", "10"]
    process = start(["walk", "trading", *words], tmp_path)
    done, run = wait_for(2, "ppo-*", tmp_path / "trading", process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 130 and f"folds done: 0 of 3. See what is done: crossfade report {done}" in err
    assert f"go on with the run under way: crossfade train --resume {run}" in err
    assert not (run / "done").exists() and checkpoint.load(run / "checkpoints", side="numpy").step < 60


def test_a_walk_that_is_stopped_says_what_is_done(tmp_path, monkeypatch, capsys):
    def fold(self, system, config, effort):
        if config.fold == 2:
            raise KeyboardInterrupt("go on")
        return SimpleNamespace(path=tmp_path / f"fold{config.fold}"), None

    monkeypatch.setattr("crossfade.systems.trading.verbs.walk.Walk._fold", fold)
    assert main(["walk", "trading", *systems()["trading"].tiny, "folds=4"]) == 130
    done = f"crossfade report {tmp_path / 'fold0'} {tmp_path / 'fold1'}"
    assert f"stopped; folds done: 0 of 4, 1 of 4. See what is done: {done}; go on" in capsys.readouterr().err


def test_a_second_ctrl_c_does_not_wait_for_the_chunk(tmp_path):
    small = [word for word in systems()["gflownet"].tiny if not word.startswith(("steps", "chunk"))]
    process = start(["climb", "gflownet", *small, "steps=1000000", "chunk=1000000", "--modes", "torch"], tmp_path)
    wait_for_handler(process)
    time.sleep(0.5)  # the only chunk is under way, and would be for an hour
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "once more stops at once" in err and "climbed: nothing yet" in err


def test_ctrl_c_in_the_first_rung_says_that_nothing_is_done(tmp_path, interrupted, capsys):
    interrupted(1)
    words = [*systems()["gflownet"].tiny, "--modes", "torch", "--updates", "1"]
    assert main(["climb", "gflownet", *words, "--runs-dir", str(tmp_path), "--quiet"]) == 130
    assert "climbed: nothing yet; go on with the run under way" in capsys.readouterr().err
