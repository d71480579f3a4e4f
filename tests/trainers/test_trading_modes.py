"""Trading in five modes: equal from one seed, resumed exactly, switched in the middle of a run."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch

from crossfade import checkpoint
from crossfade.cli import main
from crossfade.config import apply
from crossfade.errors import CheckpointError, UsageError
from crossfade.registry import find
from crossfade.run import RunDir
from crossfade.run.evaluation import Evaluation
from crossfade.run.settings import MODES
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.curriculum import Curriculum
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.saving import adopt, snapshot_of
from crossfade.trainers.system import Snapshot
from crossfade.trainers.torch_loop import TorchTrainer
from crossfade.trainers.training import train

SMALL = ("n_envs=4", "n_steps=16", "hidden=8", "days=2", "eval_days=1", "epochs=2", "minibatches=2", "env.window=3")
SHORT = ("max_bars=7", "drawdown=300", "steps=4", "chunk=2", "log_every=2", "checkpoint_every=2", "eval_every=0")
CURRICULUM = (
    "curriculum.drawdown=0:200,1:120",
    "curriculum.stop_atr=0:2,0.5:1.5,0.5:1",
    "curriculum.commission=0:0.25,1:2.5",
    "curriculum.forced=0:0.9,1:0.2",
)


def config(mode: str, *words: str, phase: int = 2) -> TradingConfig:
    """Five modes of one system, all of which go through a curriculum."""
    words = (*SMALL, *SHORT, *CURRICULUM, "dtype=float64", *words, f"mode={mode}", f"env.phase={phase}")
    return apply(TradingConfig(), words)


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torch_pure as plain torch: torch.compile cannot trace the type checks of the test run."""
    monkeypatch.setattr(torch, "compile", lambda function: function)


@pytest.mark.slow
def test_the_ladder_is_climbed_with_every_compiler_on(tmp_path):
    words = [*SMALL, *SHORT, "--updates", "3", "--json", "--runs-dir", str(tmp_path)]
    command = [sys.executable, "-m", "crossfade", "climb", "trading", *words]
    rungs = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert [rung["mode"] for rung in rungs] == list(MODES)
    assert {rung["parity"]["verdict"] for rung in rungs[1:]} <= {"EQUAL", "ROUNDING"}
    assert (tmp_path / "trading" / "climb.html").read_text().count("<svg")


def leaves(tree, prefix: str = "") -> dict[str, np.ndarray]:
    if not isinstance(tree, dict):
        return {prefix: np.asarray(tree)}
    return {name: leaf for key, part in tree.items() for name, leaf in leaves(part, f"{prefix}/{key}").items()}


def everything(snapshot: Snapshot) -> dict[str, np.ndarray]:
    moments = {name: state.moments for name, state in snapshot.optimizers.items()}
    assert moments
    return leaves({"p": snapshot.parameters, "m": moments, "b": snapshot.buffer})


def go_on(mode: str, snapshot: Snapshot | None, step: int, n: int) -> tuple[dict[str, np.ndarray], Snapshot]:
    chosen = config(mode)
    with precision(chosen):
        trainer = make_trainer(find("trading"), chosen, snapshot, step)
        metrics = trainer.run(step, n)
        return metrics, trainer.snapshot()


@lru_cache
def whole(mode: str) -> tuple[dict[str, np.ndarray], Snapshot, dict[str, np.ndarray]]:
    """The first two updates, the state after them, and all that four updates leave."""
    chosen = config(mode)
    with precision(chosen):
        trainer = make_trainer(find("trading"), chosen)
        first, middle = trainer.run(0, 2), trainer.snapshot()
        rest = trainer.run(2, 2)
        return first, middle, {**rest, **everything(trainer.snapshot())}


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        scale = max(np.abs(leaf).max(), 1e-12)
        assert np.abs(found[name] - leaf).max() / scale <= 1e-9, name


@pytest.mark.parametrize("mode", MODES[1:])
def test_every_mode_is_the_same_system_as_torch(mode):
    assert_close(whole(mode)[0], whole("torch")[0])
    assert_close(whole(mode)[2], whole("torch")[2])


def test_the_runs_that_are_compared_have_ends_of_both_kinds():
    first, _, _ = whole("torch")
    assert first["episodes"].all() and not first["illegal"].any()
    assert (first["mean_episode_length"] < 7).any() and (first["mean_episode_length"] > 1).all()


def test_another_seed_gives_another_run():
    chosen = config("torch", "seed=1")
    assert not np.allclose(make_trainer(find("trading"), chosen).run(0, 2)["loss"], whole("torch")[0]["loss"])


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(mode):
    metrics, end = go_on(mode, whole(mode)[1], 2, 2)
    found, expected = {**metrics, **everything(end)}, whole(mode)[2]
    assert found.keys() == expected.keys()
    for name in expected:
        assert np.array_equal(found[name], expected[name]), name


SWITCHES = [("torch", "jax_full"), ("jax_full", "torch_pure"), ("torch_pure", "jax_minimal"), ("jax_minimal", "torch")]


@pytest.mark.parametrize(("first", "second"), SWITCHES)
def test_a_run_may_change_its_mode_in_the_middle(first, second):
    metrics, end = go_on(second, whole(first)[1], 2, 2)
    assert_close({**metrics, **everything(end)}, whole("torch")[2])


@pytest.fixture
def unjudged(monkeypatch):
    """Runs in mode `torch` that end without trading the days held out, which takes seconds."""
    monkeypatch.setattr(TorchTrainer, "evaluate", lambda self, effort=None: Evaluation({}, {}))


def finished(run: RunDir) -> dict[str, np.ndarray]:
    """All that the last checkpoint of a run holds."""
    bundle = checkpoint.load(run.checkpoints, side="numpy")
    return everything(snapshot_of(bundle))


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> RunDir:
    """A whole run on disk, of phase 1."""
    chosen = config("torch", phase=1)
    with RunDir.create(tmp_path_factory.mktemp("runs"), "trading", chosen.parts, 0, chosen) as run:
        result = train(find("trading"), chosen, run, quiet=True)
    assert {"eval/daily", "eval/flat", "eval/random"} <= result.keys()
    return run


def test_a_run_on_disk_resumes_bit_for_bit(run, unjudged, tmp_path):
    chosen = config("torch", phase=1)
    half = replace(chosen, steps=2, schedule=4)
    with RunDir.create(tmp_path, "trading", chosen.parts, 0, half) as halves:
        train(find("trading"), half, halves, quiet=True)
        train(find("trading"), chosen, halves, resume=True, quiet=True)
    expected, found = finished(run), finished(halves)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_a_run_is_prolonged_only_when_told_what_becomes_of_its_schedules(unjudged, tmp_path):
    chosen = replace(config("torch"), steps=2)
    with RunDir.create(tmp_path, "trading", chosen.parts, 0, chosen) as run:
        train(find("trading"), chosen, run, quiet=True)
        longer = replace(chosen, steps=3)
        with pytest.raises(UsageError, match="meant for 2 updates.*lr, curriculum.drawdown.*schedule=2.*schedule=3"):
            train(find("trading"), longer, run, resume=True, quiet=True)
        train(find("trading"), replace(longer, schedule=2), run, resume=True, quiet=True)
        assert checkpoint.load(run.checkpoints).step == 3
    replace(longer, steps=4, schedule=2).check_resumed(run.read_config(TradingConfig))  # nothing changes
    constant = replace(chosen, lr_final=chosen.lr, curriculum=Curriculum())
    replace(constant, steps=9).check_resumed(constant)
    with pytest.raises(UsageError, match="progress"):
        replace(constant, rules="seed_jax", steps=9).check_resumed(constant)


@pytest.mark.parametrize("mode", ["torch", *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:])])
def test_a_killed_run_resumes_bit_for_bit(mode, unjudged, tmp_path):
    steps = 300 if mode == "jax_full" else 20
    pace = [f"steps={steps}", "chunk=5", "log_every=5", "checkpoint_every=5", "eval_every=0"]
    words = [
        "train",
        "trading",
        *SMALL,
        *SHORT[:2],
        *CURRICULUM,
        "env.phase=2",
        f"mode={mode}",
        *pace,
        "--quiet",
        "--runs-dir",
    ]
    command = [sys.executable, "-m", "crossfade"]
    alone = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}

    def call(*words: str) -> None:
        """A process of its own, but for torch: what is compiled cannot be traced through the checks of this one."""
        assert (main([*words]) if mode == "torch" else subprocess.run([*command, *words], **alone).returncode) == 0

    call(*words, str(tmp_path / "whole"))
    killed = subprocess.Popen([*command, *words, str(tmp_path / "killed")], **alone)
    while not (found := list((tmp_path / "killed").glob("*/*/checkpoints/0*"))):
        assert killed.poll() is None, "the run ended before it could be killed"
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    broken, whole = found[0].parent.parent, next((tmp_path / "whole").glob("trading/*"))
    assert not (broken / "done").exists()
    call("train", "--resume", str(broken), "--quiet")
    assert rows(broken) == rows(whole)
    expected, found = finished(RunDir(whole)), finished(RunDir(broken))
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def rows(run: Path) -> list[dict]:
    kept = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "wall" and not k.startswith("time/")} for row in kept]


def test_phase_2_grows_from_a_run_of_phase_1_and_takes_over_its_statistics(run):
    old = checkpoint.load(run.checkpoints, side="numpy")
    seen = old.replay["buffer"]["statistics"]
    for mode in ("torch", "jax_full"):
        chosen = config(mode)
        snapshot, note = adopt(find("trading"), chosen, run.path)
        assert "bit for bit" in note and "KL" in note
        with precision(chosen):
            trainer = make_trainer(find("trading"), chosen, snapshot)
        start = trainer.snapshot()
        for name in ("trunk.0.weight", "actor.0.weight"):
            rows, columns = old.params[name].shape
            assert np.array_equal(start.parameters[name][:rows, :columns], old.params[name])
            assert not start.parameters[name][rows:].any() and not start.parameters[name][:, columns:].any()
        mean = start.buffer["statistics"]["mean"]
        assert (
            np.array_equal(mean, [*seen["mean"], *[0.0] * 8]) and start.buffer["statistics"]["count"] == seen["count"]
        )
    assert make_trainer(find("trading"), config("torch"), snapshot).run(0, 1)["illegal"] == 0


def test_another_run_of_the_same_phase_takes_over_the_statistics_too(run):
    snapshot, note = adopt(find("trading"), config("torch", "seed=3", phase=1), run.path)
    saved = checkpoint.load(run.checkpoints, side="numpy")
    assert note == "" and snapshot.optimizers == {}
    assert np.array_equal(snapshot.buffer["statistics"]["var"], saved.replay["buffer"]["statistics"]["var"])
    assert not np.array_equal(snapshot.buffer["state"]["t"], saved.replay["buffer"]["state"]["t"])


MISFITS = [
    (["hidden=9"], r"trunk.0.weight: expected float64 \(9, 38\)"),
    (["env.phase=2", "hidden=9"], "trunk.0.weight"),
    (["env.phase=2", "env.window=4"], "trunk.0.weight"),
    (["features=seed8"], "features: expected sound"),
    (["dtype=float32"], "expected float32"),
]


@pytest.mark.parametrize(("words", "message"), MISFITS)
def test_weights_that_do_not_fit_are_refused_and_leave_no_folder(words, message, run, tmp_path, capsys):
    given = {word.split("=")[0]: word for word in (*SMALL, *SHORT, "dtype=float64", "mode=torch", *words)}
    command = ["train", "trading", *given.values(), "--weights", str(run.path), "--runs-dir", str(tmp_path)]
    assert main(command) == 1
    assert re.search(message, capsys.readouterr().err)
    assert not list(tmp_path.glob("trading/*"))


def test_tensorboard_and_orbax_hold_the_run(run, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.tensorboard)).Reload()
    logged = [row for row in rows(run.path) if "train/loss" in row]
    assert [event.step for event in events.Scalars("train/loss")] == [row["step"] for row in logged]
    assert {"train/action_share_1", "eval/daily"} <= set(events.Tags()["scalars"])
    assert [event.value for event in events.Scalars("train/curriculum.drawdown")] == [190, 150]  # means of two updates
    assert [event.value for event in events.Scalars("train/lr")] == pytest.approx([3e-4 * 7 / 8, 3e-4 * 3 / 8])
    with pytest.warns(UserWarning, match="orbax holds weights only; left out: optimizer, replay"):
        assert main(["convert", str(run.path), "--to", "orbax", "--out", str(tmp_path / "orbax")]) == 0
    saved, found = checkpoint.load(run.checkpoints, side="numpy"), checkpoint.import_orbax(tmp_path / "orbax")
    statistics = saved.replay["buffer"]["statistics"]
    expected = saved.params | {f"normalizer.{name}": statistics[name] for name in ("mean", "var", "count")}
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_accounts_of_another_size_are_refused():
    chosen = replace(config("torch"), n_envs=8)
    with pytest.raises(CheckpointError, match="n_envs"):
        make_trainer(find("trading"), chosen, whole("torch")[1], 2)
