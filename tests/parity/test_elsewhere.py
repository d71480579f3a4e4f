"""Proofs that look elsewhere: other sizes and signs of weights and inputs, and branches that were never taken."""

from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest
import torch
from mutants_hidden import hidden_losses, masked
from mutants_losses import td

from crossfade.parity import Twin, Verdict, check
from crossfade.parity.elsewhere import SCALES, Scale, scaled_data, scaled_weights


def test_a_bug_that_the_batch_hides_is_found_at_another_scale_and_only_there():
    twin = hidden_losses("ratio not clipped")
    report = check(twin, "loss", dtype="float64")
    assert report.verdict is Verdict.DIFFERENT and report.first is not None
    assert report.first.elsewhere in {str(scale) for scale in SCALES}
    assert "they differ with weights" in str(report.first)
    assert check(replace(twin, scales=False), "loss", dtype="float64").verdict is not Verdict.DIFFERENT


@pytest.mark.parametrize("bug", [True, False])
def test_what_is_hidden_behind_a_mask_is_told_as_not_covered(bug):
    report = check(masked(bug), dtype="float64")
    assert report.verdict is not Verdict.DIFFERENT
    assert any("not covered: where" in note and "column 2 unmasked" in note for note in report.notes)


def test_masks_integers_and_what_is_not_named_stay_as_they_are():
    twin = replace(td(), scaled=("obs", "action"))
    moved = scaled_data(twin, Scale(1.0, -3.0)).batch
    assert np.array_equal(moved["obs"], -3 * twin.batch["obs"])
    assert all(np.array_equal(moved[name], twin.batch[name]) for name in twin.batch if name != "obs")


def test_buffers_stay_positive_and_parameters_change_signs():
    weights = {"w": np.arange(1.0, 9.0), "var": np.array([0.5, 2.0]), "mean": np.zeros(2), "count": np.array(3)}
    mapping = td().mapping
    moved = scaled_weights(mapping, weights, {"w"}, Scale(-2.0, 1.0, True))
    assert (moved["w"] > 0).any() and (moved["w"] < 0).any() and np.array_equal(np.abs(moved["w"]), 2 * weights["w"])
    assert (moved["var"] > 0).all() and (moved["mean"] > 0).all() and moved["count"] == 3


@pytest.mark.parametrize(
    "torch_half",
    [
        lambda net, b: net(b["x"]).where(b["x"][:, :1] > 0, 0.0).mean(),
        lambda net, b: torch.where(b["x"][:, :1] > 0, net(b["x"]), 0.0).mean(),
        lambda net, b: torch.where(condition=b["x"][:, :1] > 0, input=net(b["x"]), other=torch.zeros(())).mean(),
    ],
    ids=["method", "function", "by name"],
)
def test_a_condition_that_was_never_false_is_told_however_where_is_called(torch_half):
    def jax_half(net, b):
        y = jax.vmap(net)(b["x"])
        return jax.numpy.where(jax.numpy.broadcast_to(b["x"][:, :1] > 0, y.shape), y, 0.0).mean()

    x = 1 + np.random.default_rng(0).random((4, 3))
    twin = Twin(
        "where",
        torch=torch.nn.Linear(3, 2),
        jax=eqx.nn.Linear(3, 2, key=jax.random.key(0)),
        example=x.copy() + 1,
        batch={"x": x},
        loss=(torch_half, jax_half),
    )
    report = check(twin, levels="loss", dtype="float64")
    assert report.exit_code == 0
    assert any("not covered" in note and "false" in note for note in report.notes), report.text()
