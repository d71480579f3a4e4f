"""Each loss learns the target, measured exactly: total variation below 0.02, log Z within 0.05."""

import json
import subprocess
import sys

import pytest

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.config import apply
from crossfade.registry import find
from crossfade.run.settings import MODES
from crossfade.trainers.making import make_trainer

LOSSES = ["tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb"]
WORLDS = [("env=hypergrid", "env.length=8", "env.r0=1e-3"), ("env=grid", "env.length=16")]


@pytest.mark.slow  # the default run has tests/algos/test_gflownet_full.py, where trajectory balance learns a target
@pytest.mark.parametrize("world", WORLDS, ids=["hypergrid", "corners"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_learns_the_target(loss, world):
    backward = "uniform" if loss == "fm" else "shared"
    words = (*world, f"loss={loss}", f"backward={backward}", "lr_period=2000", "lr_gamma=0.3", "mode=jax_full")
    trainer = make_trainer(find("gflownet"), apply(GFlowNetConfig(), words))
    trainer.run(0, 5000)
    found = trainer.evaluate().metrics
    assert found["eval/tv"] < 0.02
    assert found.get("eval/log_z_error", 0.0) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS, ids=["hypergrid", "corners"])
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_learns_the_target(mode, world, tmp_path):
    """By the command line, so that torch_pure is compiled as it is for everybody."""
    words = [*world, f"mode={mode}", "steps=3000", "lr_period=1000", "lr_gamma=0.3", "checkpoint_every=0"]
    command = [sys.executable, "-m", "crossfade", "train", "gflownet", *words, "--json", "--runs-dir", str(tmp_path)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert found["eval/tv"] < 0.02
    assert found["eval/log_z_error"] < 0.05
