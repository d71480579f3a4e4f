"""The torch half and the JAX half of a GFlowNet, written apart, are the same system."""

from dataclasses import replace

import numpy as np
import pytest

from crossfade.algos.gflownet import losses_torch
from crossfade.algos.gflownet.config import GFlowNetConfig
from crossfade.config import apply
from crossfade.parity import Verdict, check
from crossfade.registry import find
from crossfade.systems.gflownet.twin import gflownet
from crossfade.trainers.making import make_trainer, precision
from default_run import few

LOSSES = ("tb", "vargrad", "db", "mdb", "subtb", "fm", "fldb")
SMALL_BITS = ("env=bits", "env.n_bits=8", "env.word_bits=2", "env.n_modes=3")


@pytest.mark.parametrize("loss", few(LOSSES, "mdb", "subtb", "fm"))
def test_the_halves_agree_on_every_loss(loss):
    backward = "uniform" if loss == "fm" else "shared"  # flow matching has no use for a learned P_B
    report = check(gflownet(f"loss={loss}", f"backward={backward}"), levels="grad", dtype="float64")
    assert report.verdict is not Verdict.DIFFERENT, report.text()


@pytest.mark.parametrize("backward", few(("learned", "uniform"), "learned"))
def test_the_halves_agree_on_every_backward_policy(backward):
    report = check(gflownet(f"backward={backward}"), levels="grad", dtype="float64")
    assert report.verdict is not Verdict.DIFFERENT, report.text()


def test_the_halves_agree_up_to_the_trajectories():
    report = check(gflownet("epsilon=0.1", "temperature=1.5"), steps=(1, 10))
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert {row.level for row in report.rows if row.verdict is not None} >= {"updates", "env", "rollout"}


def test_a_wrong_sign_in_one_half_is_noticed(monkeypatch):
    right = losses_torch.trajectory_balance
    wrong = lambda terms, *rest: right(terms._replace(log_pb=-terms.log_pb), *rest)
    monkeypatch.setattr(losses_torch, "trajectory_balance", wrong)
    report = check(gflownet(), levels="grad", dtype="float64")
    assert report.verdict is Verdict.DIFFERENT and report.first is not None and report.first.level == "loss"


def trained(mode: str, words: tuple[str, ...], updates: int) -> dict[str, np.ndarray]:
    config = apply(GFlowNetConfig(), ("dtype=float64", "hidden=16", "batch_size=8", *words))
    config = replace(config, mode=mode)
    with precision(config):
        trainer = make_trainer(find("gflownet"), config)
        metrics = trainer.run(0, updates)
        return {**metrics, **trainer.snapshot().parameters}


PROBLEMS = [
    (f"loss={loss}", *world)
    for loss in ("tb", "db", "subtb", "fm", "fldb")
    for world in (("env=grid",), SMALL_BITS, ("env=toy",))
]
CASES = [
    *((words, 30) for words in (("loss=tb", "env=toy"), ("loss=fm", "env=toy"))),
    *((words, 200) for words in PROBLEMS),
]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "iterations"), CASES)
def test_iterations_from_one_key_are_the_same(words, iterations):
    ours, theirs = (trained(mode, words, iterations) for mode in ("torch", "jax_full"))
    assert np.array_equal(ours["mean_length"], theirs["mean_length"])  # the same actions
    for name in ours:
        scale = max(np.abs(ours[name]).max(), 1e-12)
        assert np.abs(ours[name] - theirs[name]).max() / scale <= 1e-9, name
