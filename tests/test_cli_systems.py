"""train, eval, climb and report as a user meets them."""

import json
from pathlib import Path

import pytest

from crossfade.cli import main

SMALL = ["env=hypergrid", "hidden=8", "batch_size=4", "steps=6", "chunk=3", "log_every=3"]


def train(tmp_path: Path, *words: str) -> Path:
    assert main(["train", "gflownet", *SMALL, *words, "--runs-dir", str(tmp_path), "--quiet"]) == 0
    return max((tmp_path / "gflownet").glob("tb-*"), key=lambda path: path.stat().st_mtime_ns)


def test_a_run_leaves_config_metrics_checkpoint_and_result(tmp_path, capsys):
    run = train(tmp_path, "mode=torch")
    assert {"config.yaml", "meta.json", "metrics.jsonl", "checkpoints", "tensorboard", "done"} <= {
        path.name for path in run.iterdir()
    }
    assert "eval/tv" in capsys.readouterr().out


def test_eval_repeats_the_last_evaluation(tmp_path, capsys):
    run = train(tmp_path, "mode=torch")
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    capsys.readouterr()
    assert main(["eval", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["eval/tv"] == last["eval/tv"]


def test_a_finished_run_is_prolonged_in_another_mode(tmp_path):
    run = train(tmp_path, "mode=torch")
    assert main(["train", "--resume", str(run), "steps=12", "mode=jax_full", "--quiet"]) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [3, 6, 9, 12]
    assert "mode: jax_full" in (run / "config.yaml").read_text()


def test_climb_proves_and_reports(tmp_path, capsys):
    words = [*SMALL, "--modes", "torch", "jax_full", "--updates", "4", "--runs-dir", str(tmp_path)]
    assert main(["climb", "gflownet", *words]) == 0
    out = capsys.readouterr().out
    assert "ROUNDING" in out and "climb.html" in out
    page = (tmp_path / "gflownet" / "climb.html").read_text()
    assert "What was learned" in page and "jax_full" in page and "http://" not in page.replace("http://www.w3.org", "")


def test_report_covers_all_runs(tmp_path, capsys):
    train(tmp_path, "mode=torch")
    assert main(["report", "--runs-dir", str(tmp_path)]) == 0
    assert "train/loss" in (tmp_path / "report.html").read_text()


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


def test_a_checkpoint_of_another_shape_is_refused(tmp_path, capsys):
    run = train(tmp_path, "mode=torch")
    assert main(["train", "--resume", str(run), "hidden=16", "steps=12", "--quiet"]) in (1, 2)
    assert "trunk.0.weight" in capsys.readouterr().err
