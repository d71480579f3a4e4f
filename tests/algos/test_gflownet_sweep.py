"""The verb sweep as a user meets it."""

import json
import signal

import numpy as np
import pytest

from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.cli import main
from crossfade.errors import UsageError
from crossfade.systems.gflownet import RECORD as GFLOWNET
from crossfade.systems.gflownet.population_jax import VARYING
from crossfade.verbs.sweep import combinations, read_over, train
from crossfade.verbs.sweep_report import record, show, write_page

SMALL = ["gflownet", "env=hypergrid", "hidden=8", "layers=1", "batch_size=4", "steps=6", "chunk=3", "log_every=3"]


@pytest.mark.slow
def test_a_sweep_trains_all_combinations_and_ranks_them(tmp_path, capsys):
    words = [*SMALL, "--runs-dir", str(tmp_path), "--over", "seed=0..1", "lr=1e-3,1e-2"]
    assert main(["sweep", *words]) == 0
    printed = capsys.readouterr().out
    assert "TV" in printed and "4 members, 6 iterations" in printed
    (folder,) = (tmp_path / "gflownet").iterdir()
    found = json.loads((folder / "sweep.json").read_text())
    settings = [tuple(member["settings"].values()) for member in found["members"]]
    assert sorted(settings) == [(0, 0.001), (0, 0.01), (1, 0.001), (1, 0.01)]
    ranks = [member["last"]["eval/tv"] for member in found["members"]]
    assert ranks == sorted(ranks) and len(set(ranks)) == 4
    assert found["members"][0]["curves"]["train/loss"]["step"] == [3, 6]
    page = (folder / "sweep.html").read_text()
    assert "Over seeds" in page and "lr=0.01" in page and "http://" not in page.replace("http://www.w3.org", "")


def test_over_reads_lists_and_spans():
    assert read_over(("seed=3..5,9", "lr=1e-3,3e-4"), VARYING) == {
        "seed": ["3", "4", "5", "9"],
        "lr": ["1e-3", "3e-4"],
    }


@pytest.mark.parametrize(
    ("over", "hint"),
    [
        ((), "expected --over"),
        (("hidden=8,16",), "hidden cannot vary. .*seed, lr, lr_z, epsilon, temperature, subtb_lambda"),
        (("env=grid",), "env cannot vary"),
        (("lrz=1",), "Did you mean 'lr_z'"),
        (("lr",), "key=value,value"),
        (("lr=1,1",), "given twice"),
        (("lr=1", "lr=2"), "given twice"),
        (("lr=fast",), "expected float"),
        (("epsilon=0,2",), "probability"),
    ],
)
def test_what_cannot_vary_is_answered_in_words(over, hint):
    with pytest.raises(UsageError, match=hint):
        combinations(GFlowNetConfig(), read_over(over, VARYING))


class Interrupted:
    """A population of two that is interrupted in its second chunk; one member has diverged."""

    def run(self, step, n):
        if step:
            signal.raise_signal(signal.SIGINT)
        return {"loss": np.array([[np.nan] * n, [2.0] * n])}

    def evaluate(self):
        return {"tv": np.array([np.nan, 0.5])}


def test_ctrl_c_keeps_what_is_done_and_divergence_ranks_last(tmp_path, capsys):
    base = GFlowNetConfig(steps=12, chunk=3, log_every=3, eval_every=0)
    over = {"lr": ["1", "1e-3"]}
    history = train(Interrupted(), base, title="", quiet=True)
    found = record(GFLOWNET, base, over, combinations(base, over), history)
    assert found["step"] == 6
    first, last = found["members"]
    assert first["settings"] == {"lr": 0.001} and first["last"] == {"eval/tv": 0.5, "train/loss": 2.0}
    assert last["last"] == {"eval/tv": None, "train/loss": None}
    show(GFLOWNET, found)
    assert "stopped before 12" in capsys.readouterr().out
    assert write_page(tmp_path / "sweep.html", GFLOWNET, found).exists()
