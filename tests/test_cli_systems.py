"""train and report as a user meets them; what every system does there is in systems/test_contract_runs.py."""

import json
import shutil
from pathlib import Path

import pytest

from crossfade.cli import main

SMALL = ["env=hypergrid", "hidden=8", "batch_size=4", "steps=6", "chunk=3", "log_every=3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run; nobody changes it."""
    folder = tmp_path_factory.mktemp("runs")
    assert main(["train", "gflownet", *SMALL, "mode=torch", "--runs-dir", str(folder), "--quiet"]) == 0
    return next(folder.glob("gflownet/tb-*"))


def test_a_run_leaves_config_metrics_checkpoint_and_result(run):
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "meta.json", "metrics.jsonl", "checkpoints", "tensorboard", "done"} <= names


@pytest.mark.slow
def test_a_finished_run_is_prolonged_in_another_mode(run, tmp_path, capsys):
    run = shutil.copytree(run, tmp_path / "gflownet" / run.name)
    assert main(["train", "--resume", str(run), "steps=12", "mode=jax_full", "--quiet"]) == 0
    assert "eval/tv" in capsys.readouterr().out
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [3, 6, 9, 12]
    assert "mode: jax_full" in (run / "config.yaml").read_text()


def test_report_covers_all_runs(run, tmp_path):
    words = ["--runs-dir", str(run.parent.parent), "--out", str(tmp_path / "report.html")]
    assert main(["report", *words]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "train/loss" in page and "What was learned" in page


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["gflownt"], "Did you mean 'gflownet'?"),
        ([], "expected a system first"),
        (["gflownet", "env=gird"], "Did you mean 'grid'?"),
        (["gflownet", "los=tb"], "Did you mean 'loss'?"),
        (["gflownet", "loss=bd"], "db"),
        (["gflownet", "env=hypergrid", "env.length=1"], "length"),
        (["gflownet", "env=hypergrid", "env.r0=-1"], "r0"),
        (["gflownet", "loss=mdb", "env=ising"], "every object may stop"),
        (["gflownet", "epsilon=2"], "probability"),
        (["gflownet", "steps=many"], "steps"),
        (["gflownet", "--preset", "dmo"], "Did you mean 'demo'?"),
        (["gflownet", "--preset", "demo", "los=tb"], "Did you mean 'loss'?"),
    ],
)
def test_bad_settings_are_answered_in_words(words, hint, tmp_path, capsys):
    assert main(["train", *words, "--runs-dir", str(tmp_path)]) == 2
    assert hint in capsys.readouterr().err
    assert not list(tmp_path.glob("gflownet/*/metrics.jsonl")) or "every object" in hint


def test_a_checkpoint_of_another_shape_is_refused(run, capsys):
    assert main(["train", "--resume", str(run), "hidden=16", "steps=12", "--quiet"]) == 1
    assert "trunk.0.weight" in capsys.readouterr().err
