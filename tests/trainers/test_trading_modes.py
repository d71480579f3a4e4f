"""Trading in five modes: equal from one seed, resumed exactly, switched in the middle of a run."""

import json
import subprocess
import sys
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from crossfade import checkpoint
from crossfade.algos.trading.config import TradingConfig
from crossfade.config import apply
from crossfade.errors import CheckpointError
from crossfade.run import RunDir
from crossfade.run.settings import MODES
from crossfade.trainers.trainer import Snapshot
from crossfade.trainers.training import make_trainer, precision, train

SMALL = ("n_envs=4", "n_steps=16", "hidden=8", "days=2", "eval_days=1", "epochs=2", "minibatches=2", "env.window=3")
SHORT = ("max_bars=7", "drawdown=300", "steps=4", "chunk=2", "log_every=2", "checkpoint_every=2", "eval_every=0")


def config(mode: str, *words: str) -> TradingConfig:
    return apply(TradingConfig(), (*SMALL, *SHORT, "dtype=float64", *words, f"mode={mode}"))


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """torch_pure as plain torch: torch.compile cannot trace the type checks of the test run."""
    monkeypatch.setattr("crossfade.trainers.torch_pure.shutil.which", lambda name: None)


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
    return leaves({"p": snapshot.parameters, "m": snapshot.optimizer.moments, "b": snapshot.buffer})


def go_on(mode: str, snapshot: Snapshot | None, step: int, n: int) -> tuple[dict[str, np.ndarray], Snapshot]:
    chosen = config(mode)
    with precision(chosen):
        trainer = make_trainer("trading", chosen, snapshot, step)
        metrics = trainer.run(step, n)
        return metrics, trainer.snapshot()


@lru_cache
def whole(mode: str) -> tuple[dict[str, np.ndarray], Snapshot, dict[str, np.ndarray]]:
    """The first two updates, the state after them, and all that four updates leave."""
    chosen = config(mode)
    with precision(chosen):
        trainer = make_trainer("trading", chosen)
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
    assert (first["mean_episode_length"] < 7).all() and (first["mean_episode_length"] > 1).all()


def test_another_seed_gives_another_run():
    chosen = config("torch", "seed=1")
    assert not np.allclose(make_trainer("trading", chosen).run(0, 2)["loss"], whole("torch")[0]["loss"])


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


def test_a_run_on_disk_resumes_bit_for_bit_and_is_evaluated(tmp_path):
    chosen = config("torch", "lr_final=3e-4")  # a rate that does not depend on how long the run is meant to be
    ends = []
    for halves in (False, True):
        with RunDir.create(tmp_path, "trading", chosen.parts, 0, chosen) as run:
            if halves:
                train("trading", replace(chosen, steps=2), run, quiet=True)
            result = train("trading", chosen, run, resume=halves, quiet=True)
        bundle = checkpoint.load(run.checkpoints, side="numpy")
        ends.append(everything(Snapshot(bundle.params, bundle.optimizer, bundle.replay["buffer"])))
        assert {"eval/daily", "eval/flat", "eval/random"} <= result.keys()
    assert all(np.array_equal(ends[1][name], ends[0][name]) for name in ends[0])


def test_accounts_of_another_size_are_refused():
    chosen = replace(config("torch"), n_envs=8)
    with pytest.raises(CheckpointError, match="n_envs"):
        make_trainer("trading", chosen, whole("torch")[1], 2)
