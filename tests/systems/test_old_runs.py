"""Runs that version 0.1 left behind are resumed in any mode, to the end that version came to, and evaluated."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from contract import rows, saved

from crossfade.cli import main
from crossfade.loading import load_attribute
from crossfade.registry import find
from crossfade.run import RunDir, trials
from crossfade.run.settings import MODES

OLD = Path(__file__).parent.parent / "data" / "runs-0.1"
SYSTEMS = sorted(path.parent.name for path in OLD.glob("*/run"))
DEAR = ["gflownet", pytest.param("trading", marks=pytest.mark.slow)]
LATER = ["torch", *(pytest.param(mode, marks=pytest.mark.slow) for mode in MODES[1:])]


@pytest.fixture
def old(system, tmp_path) -> Path:
    """A copy of a finished run, and of the ledger beside it."""
    shutil.copytree(OLD, tmp_path / "runs")
    return tmp_path / "runs" / system / "run"


def tried(run):
    """What the ledger knows of the run's test set."""
    system = find(run.parent.name)
    config = RunDir.open(run).read_config(load_attribute(system.config))
    return trials.read(run.parent.parent, system.name, config, config.test_set)


def test_there_are_runs_with_replay_and_with_worlds_under_way():
    assert SYSTEMS == ["gflownet", "trading"]
    assert any("buffer" in name for name in saved(OLD / "gflownet" / "run"))
    assert any("statistics" in name for name in saved(OLD / "trading" / "run"))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("mode", LATER)
def test_an_old_run_goes_on_in_another_mode_to_the_same_end(old, mode):
    expected, logged = saved(old), rows(old)
    shutil.rmtree(old / "checkpoints" / "0000000008")  # as if it had been killed in its second half
    (old / "done").unlink()
    assert main(["train", "--resume", str(old), f"mode={mode}", "--quiet"]) == 0
    assert tried(old).trials == 1  # the same trial, though settings were added
    found = saved(old)
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        assert found[name].dtype == leaf.dtype, name
        scale = max(np.abs(leaf).max(initial=0.0), 1e-12)
        assert np.abs(found[name] - leaf).max(initial=0.0) <= 1e-9 * scale, name
    assert [row["step"] for row in rows(old)] == [row["step"] for row in logged]
    for now, then in zip(rows(old), logged, strict=True):
        shared = (now.keys() & then.keys()) - {"env_steps"}  # version 0.1 logged 0 of them for PPO
        assert "train/loss" in shared and len(shared) > len(then) / 2
        assert [now[name] for name in shared] == pytest.approx([then[name] for name in shared], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("system", DEAR)
def test_an_old_run_is_evaluated_to_the_same_figures(old, capsys):
    last = rows(old)[-1]
    assert main(["eval", str(old), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    shared = [name for name in last if name.startswith("eval/") and name in told]
    assert shared
    assert [told[name] for name in shared] == pytest.approx([last[name] for name in shared], rel=1e-9)


@pytest.mark.parametrize("system", DEAR)
def test_an_old_run_is_reported_and_its_ledger_read(old, tmp_path):
    page = tmp_path / "report.html"
    assert main(["report", str(old), "--out", str(page), "--quiet"]) == 0
    assert "train/loss" in page.read_text()
    assert tried(old).trials == 1
