"""Each loss learns the target, measured exactly: total variation below 0.02, log Z within 0.05."""

import pytest

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.config import apply
from crossfade.trainers.training import make_trainer

LOSSES = [
    "tb",
    *(pytest.param(loss, marks=pytest.mark.slow) for loss in ("vargrad", "db", "mdb", "subtb", "fm", "fldb")),
]
WORLDS = [("env=hypergrid", "env.length=8", "env.r0=1e-3"), ("env=grid", "env.length=16")]


@pytest.mark.parametrize("world", WORLDS, ids=["hypergrid", "corners"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_learns_the_target(loss, world):
    backward = "uniform" if loss == "fm" else "shared"
    words = (*world, f"loss={loss}", f"backward={backward}", "lr_period=2000", "lr_gamma=0.3", "mode=jax_full")
    trainer = make_trainer("gflownet", apply(GFlowNetConfig(), words))
    trainer.run(0, 5000)
    found = trainer.evaluate().metrics
    assert found["eval/tv"] < 0.02
    assert found.get("eval/log_z_error", 0.0) < 0.05
