"""What `check` runs, what it refuses, what it says; each proof with a guard that breaks it."""

import dataclasses
import json
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from mutants_losses import td
from mutants_nets import trunk
from mutants_updates import descent, idle, learner
from mutants_worlds import GridJax, GridNumpy, grid
from parity_halves import draw, functional, linear, make_twin, seeded
from torch import nn

from crossfade.bridge.mapping import Entry, Mapping
from crossfade.bridge.rules import Rule, add
from crossfade.errors import DifferentError, UsageError
from crossfade.parity import Report, Twin, Verdict, check
from crossfade.parity.cases import cases
from default_run import few

FAST = {"dtype": "float64", "steps": (1, 3)}


def verdicts(report: Report) -> dict[str, str]:
    return {row.level: str(row.verdict) if row.verdict is not None else row.status for row in report.rows}


def regression(torch_loss, jax_loss, **fields) -> Twin:
    module = seeded(lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    return make_twin("regression", module, net, batch=draw(5, 3), loss=(torch_loss, jax_loss), **fields)


def net(p, x):
    return linear(p["2"], jnp.tanh(linear(p["0"], x)))


# The shipped twins


LIMITS = {"map": 0.0, "forward": 1e-12, "loss": 1e-12, "grad": 1e-12, "update": 1e-9, "updates": 1e-9}


def assert_rounding(report):
    assert report.verdict is Verdict.ROUNDING, report.text()
    rows = [row for row in report.rows if row.verdict is not None]
    assert rows and all(row.guard and row.float64.size <= LIMITS[row.level] for row in rows), report.text()


@pytest.mark.parametrize("name", few(cases(), "policy_value"))
def test_shipped_twins_agree_to_rounding(name):
    report = check(cases()[name](), steps=(1, 10, 100))
    assert_rounding(report)
    assert all(row.float32 is not None for row in report.rows if row.verdict is not None)


@pytest.mark.slow
@pytest.mark.parametrize("name", cases())
def test_shipped_twins_agree_after_a_thousand_updates(name):
    assert_rounding(check(cases()[name](), ["updates"], dtype="float64", steps=(1000,)))


# Which levels


def test_a_level_without_functions_is_not_given_and_never_passed():
    report = check(trunk(), **FAST)
    assert verdicts(report) == {
        "map": "EQUAL",
        "forward": "ROUNDING",
        **dict.fromkeys(("loss", "grad", "update", "updates", "env", "rollout"), "not given"),
    }


def test_one_name_means_that_level_and_all_below_and_a_list_means_those():
    twin = descent("adam")
    asked = {level: v for level, v in verdicts(check(twin, "grad", **FAST)).items() if v in ("EQUAL", "ROUNDING")}
    assert list(asked) == ["map", "loss", "grad"]
    asked = {level: v for level, v in verdicts(check(twin, ["update"], **FAST)).items() if v in ("EQUAL", "ROUNDING")}
    assert list(asked) == ["update"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"levels": "env"}, "needs env= and actions="),
        ({"levels": ["forward", "loss"]}, "level 'loss' of twin 'trunk' needs loss="),
        ({"levels": "foward"}, "Did you mean 'forward'"),
        ({"dtype": "float16"}, "expected dtype"),
        ({"steps": (0, 3)}, "at least 1"),
    ],
)
def test_wrong_usage_is_told(arguments, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        check(trunk(), **arguments)


def test_one_update_is_not_several():
    with pytest.raises(UsageError, match="'update' is one update"):
        check(descent("adam"), steps=(1,))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"torch": nn.Linear(2, 2)}, "jax= is missing"),
        ({"loss": (len,)}, "expected a pair"),
    ],
)
def test_a_malformed_twin_is_refused(fields, message):
    with pytest.raises(UsageError, match=message):
        Twin("malformed", **fields)


def test_a_twin_without_mapping_or_example_is_told_what_to_give():
    module = nn.Linear(2, 2)
    twin = Twin("no example", torch=module, jax=functional(module, linear), batch={"x": draw(2, 2)}, loss=(len, len))
    with pytest.raises(UsageError, match="give example="):
        check(twin)


def test_the_climb_stops_at_the_first_level_that_fails():
    report = check(td("discount squared"), **FAST)
    assert verdicts(report)["loss"] == "DIFFERENT"
    assert verdicts(report)["grad"] == "not reached"


# What is found


def test_the_finding_names_quantity_leaf_element_values_and_size():
    module = nn.Linear(3, 2)
    model = functional(module, lambda p, x: x)
    model = (model[0], {"dense": {"w": model[1]["weight"], "b": model[1]["bias"]}})
    entries = (Entry(("weight",), ("dense.w",), Rule()), Entry(("bias",), ("dense.b",), Rule()))
    twin = Twin(
        "renamed",
        torch=module,
        jax=model,
        batch={"x": draw(4, 3)},
        mapping=Mapping(entries, {"weight": (2, 3), "bias": (2,)}, model),
        loss=(
            lambda m, b: m(b["x"]).sum(),
            lambda m, b: linear({"weight": m[1]["dense"]["w"], "bias": one_half(m[1]["dense"]["b"])}, b["x"]).sum(),
        ),
    )
    first = check(twin, **FAST).first
    assert first is not None
    assert (first.level, first.quantity, first.leaf, first.jax_leaf) == ("grad", "grad", "bias", "dense.b")
    assert (first.difference.index, first.difference.torch, first.difference.jax) == ((1,), "4.0", "2.0")
    assert "grad of bias (JAX: dense.b), element [1]: torch 4.0, JAX 2.0" in str(first)


def one_half(x):
    """x, with half the derivative in the second element."""
    return jnp.where(jnp.arange(2) == 1, (x + jax.lax.stop_gradient(x)) / 2, x)


def test_a_float32_leak_is_named_as_such():
    assert "float32" in str(check(trunk("float32 leak"), **FAST).first)
    assert "is a float32 leak; if it is meant" in str(check(trunk("float32 result"), **FAST).first)


def test_a_hollow_comparison_is_no_proof():
    twin = regression(lambda m, x: x.sum() + 0 * m[0].weight.sum(), lambda p, x: x.sum())
    report = check(twin, **FAST)
    assert report.verdict is Verdict.DIFFERENT
    assert report.first is not None and report.first.difference.kind == "hollow"
    assert "loss: the comparison is hollow" in str(report.first)


def test_an_environment_that_ignores_its_actions_is_hollow():
    report = check(dataclasses.replace(grid(), actions=np.zeros(5, int)))
    assert report.first is not None and "exchanging the actions" in str(report.first)


def test_an_environment_is_compiled_once_in_each_precision(monkeypatch):
    twin, traced = grid(), []
    step = type(twin.half("env", "jax")).step
    counting = lambda env, state, action: traced.append(None) or step(env, state, action)
    monkeypatch.setattr(type(twin.half("env", "jax")), "step", counting)
    assert check(twin, ["env"]).verdict is not Verdict.DIFFERENT
    assert len(traced) == 2


def test_gradients_that_one_side_does_not_have_are_found():
    report = check(
        regression(lambda m, x: m(x).square().mean(), lambda p, x: jnp.square(net(jax.lax.stop_gradient(p), x)).mean()),
        **FAST,
    )
    assert report.first is not None and report.first.level == "grad"


def test_environments_with_other_names_are_told_apart():
    class Renamed(GridJax):
        def reset(self, key):
            return {"place" if name == "position" else name: leaf for name, leaf in super().reset(key).items()}

    report = check(Twin("renamed", env=(GridNumpy(), Renamed()), actions=np.arange(4)))
    assert "env: reset of position: only one half has it" in str(report.first)


def test_an_optimiser_without_counterpart_fails_its_level():
    twin = dataclasses.replace(descent("adam"), optimizer=lambda p: torch.optim.Rprop(p))
    report = check(twin, **FAST)
    assert report.first is not None and report.first.level == "update"
    assert "Rprop" in str(report.first)


def test_an_error_says_which_half_raised_it():
    twin = regression(lambda m, x: m(x).square().mean(), lambda p, x: p["missing"])
    with pytest.raises(KeyError) as error:
        check(twin, **FAST)
    assert "raised by the jax half of 'regression' at level loss" in error.value.__notes__[-1]


# What is noted


def test_clean_relu_training_is_rounding_however_chaotic_its_float32():
    def relu_net(p, x):
        return linear(p["2"], jax.nn.relu(linear(p["0"], x)))

    twin = make_twin(
        "chaos",
        seeded(lambda: nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))),
        relu_net,
        batch=10 * draw(16, 3),
        loss=(
            lambda m, x: (m(x).squeeze(-1) - x.prod(-1)).square().mean(),
            lambda p, x: jnp.square(relu_net(p, x).squeeze(-1) - x.prod(-1)).mean(),
        ),
        optimizer=lambda p: torch.optim.Adam(p, lr=0.1),
    )
    report = check(twin, steps=(1, 300))
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert any("float64 is the proof" in note for note in report.notes), report.text()


@pytest.mark.parametrize(("rate", "verdict"), [(3.9, Verdict.ROUNDING), (3.9 + 1e-7, Verdict.DIFFERENT)])
def test_training_that_is_chaotic_in_float64_is_held_to_its_own_noise(rate, verdict):
    class Logistic(nn.Module):
        def __init__(self):
            super().__init__()
            self.x = nn.Parameter(torch.linspace(0.1, 0.9, 8))

    twin = make_twin(  # one step of gradient descent is the logistic map
        "logistic map",
        Logistic(),
        batch={"rate": np.float32(0)},
        loss=(
            lambda m, b: (m.x**2 / 2 - 3.9 * (m.x**2 / 2 - m.x**3 / 3)).sum(),
            lambda p, b: jnp.sum(p["x"] * p["x"] * ((1 - rate) / 2 + rate / 3 * p["x"])),
        ),
        optimizer=lambda p: torch.optim.SGD(p, lr=1.0),
    )
    report = check(twin, ["updates"], dtype="float64", steps=(1, 45))
    assert report.verdict is verdict, report.text()
    assert any("a unit in the last place of float64 grows" in note for note in report.notes), report.text()


def test_gradients_of_rounding_alone_are_noted_and_raise_no_alarm():
    report = check(learner(), **FAST)
    assert report.verdict is Verdict.ROUNDING
    assert any("zero but for rounding" in note and "fc.bias" in note for note in report.notes)


def test_idle_and_frozen_parameters_are_noted():
    notes = " ".join(check(idle("idle parameters decayed"), **FAST).notes)
    assert "no gradient in torch, taken as zero: spare.bias, spare.weight" in notes
    notes = " ".join(check(descent("adam"), **FAST).notes)
    assert "frozen in torch but differentiated in JAX" in notes and "fixed.weight" in notes


def test_less_care_for_rounding_on_one_side_is_noted():
    def fast_variance(p, x):
        return jnp.mean(x * x, -1) - jnp.mean(x, -1) ** 2 + p["weight"].sum()

    module = seeded(lambda: nn.Linear(2, 1, bias=False))
    twin = make_twin(
        "variance",
        module,
        batch=300 + draw(4, 8),
        forward=(lambda m, x: x.var(-1, correction=0) + m.weight.sum(), fast_variance),
    )
    report = check(twin)
    assert report.verdict is Verdict.ROUNDING, report.text()
    assert any("the JAX half is far from its own float64 self" in note for note in report.notes), report.text()


def test_where_float64_cannot_run_float32_is_judged_and_the_report_says_so():
    def narrow(m, x):
        return m(x) if x.dtype == torch.float32 else torch.tensor(1.0).to(torch.complex64).item().missing

    def twin(factor):
        return make_twin(
            "narrow",
            seeded(lambda: nn.Linear(3, 2)),
            batch=draw(4, 3),
            forward=(narrow, lambda p, x: factor * linear(p, x)),
        )

    report = check(twin(1.0))
    assert report.verdict is not Verdict.DIFFERENT
    assert any("float64 could not run" in note and "torch half" in note for note in report.notes)
    assert check(twin(1.001)).verdict is Verdict.DIFFERENT
    with pytest.raises(AttributeError):
        check(twin(1.0), dtype="float64")


@pytest.mark.parametrize("bug", [None, "entropy with the wrong sign"])
def test_float32_alone_finds_bugs_too_but_says_it_proves_less(bug):
    from mutants_losses import ppo

    report = check(ppo(bug), dtype="float32")
    assert (report.verdict is Verdict.DIFFERENT) == (bug is not None), report.text()
    assert any("proves less" in note for note in report.notes)


# Mappings that are more than a change of names


def test_two_biases_that_are_one_leaf_in_jax_are_compared_as_their_sum():
    class TwoBiases(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(2, 3))
            self.bias_ih, self.bias_hh = nn.Parameter(torch.randn(2)), nn.Parameter(torch.randn(2))

        def forward(self, x):
            return torch.tanh(x @ self.weight.T + self.bias_ih + self.bias_hh)

    module = seeded(TwoBiases)
    model = functional(nn.Linear(3, 2), lambda p, x: jnp.tanh(linear(p, x)))
    entries = (Entry(("weight",), ("weight",), Rule()), Entry(("bias_ih", "bias_hh"), ("bias",), Rule(add())))
    shapes = {name: tuple(t.shape) for name, t in module.state_dict().items()}
    twin = Twin(
        "two biases",
        torch=module,
        jax=model,
        batch=draw(4, 3),
        mapping=Mapping(entries, shapes, model),
        loss=(lambda m, x: m(x).square().sum(), lambda m, x: jnp.square(m[0].apply(m[1], x)).sum()),
        optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
    )
    assert check(twin, "grad", **FAST).verdict is Verdict.ROUNDING
    first = check(twin, **FAST).first
    assert first is not None and first.level == "update"  # torch moves the sum twice as far
    assert "bias_hh" in str(first)


# The report


def test_reports_are_text_json_and_one_page(tmp_path):
    good, bad = check(trunk(), **FAST), check(trunk("LayerNorm eps 1e-6"), **FAST)
    assert (good.exit_code, bad.exit_code) == (0, 1)
    assert good.raise_if_different() is good
    with pytest.raises(DifferentError, match="first difference: forward: output"):
        bad.raise_if_different()
    assert json.loads(json.dumps(bad.json()))["first"]["difference"]["leaf"] == "output"
    page = bad.save(tmp_path / "deep" / "report.html").read_text()
    assert "<title>parity of trunk: DIFFERENT</title>" in page and "First difference" in page
    assert "http" not in page and "<script" not in page
    assert json.loads(good.save(tmp_path / "report.json").read_text()) == json.loads(json.dumps(good.json()))
    assert good.save(tmp_path / "report.txt").read_text() == good.text() + "\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "report.json", "report.txt"]
    with pytest.raises(UsageError, match=".html, .json, .txt"):
        good.save(tmp_path / "report.pdf")


def test_what_users_write_cannot_break_the_page():
    report = check(dataclasses.replace(trunk(), name="<b>twin</b>"), **FAST)
    assert "<b>twin</b>" not in report.html()


def test_the_fixture_fails_a_test_that_differs(parity):
    assert parity(trunk(), "forward", **FAST).verdict is Verdict.ROUNDING
    with pytest.raises(DifferentError):
        parity(trunk("square kernel not transposed"), "forward", **FAST)


def test_the_plugin_the_cases_and_the_public_types_import_no_framework():
    code = """
import sys
import crossfade.parity.cases, crossfade.parity.pytest_plugin
from crossfade.parity import Report, Twin, Verdict
assert not {"torch", "jax"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_check_leaves_the_user_s_objects_alone():
    twin = learner()
    before = {name: tensor.clone() for name, tensor in twin.torch.state_dict().items()}
    dtype = torch.get_default_dtype()
    check(twin, **FAST)
    assert all(torch.equal(tensor, before[name]) for name, tensor in twin.torch.state_dict().items())
    assert all(p.grad is None for p in twin.torch.parameters())
    assert torch.get_default_dtype() == dtype and not jax.config.jax_enable_x64
