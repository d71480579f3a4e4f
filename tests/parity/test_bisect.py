"""`bisect` names the operation, the line of both halves and the cause; on clean twins it finds nothing."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from mutants import CLEAN, MUTANTS
from mutants_amp import amp_loss, amp_motion
from mutants_losses import ppo, sac, td
from mutants_nets import trunk
from mutants_updates import descent, learner
from mutants_worlds import grid
from parity_halves import draw, linear, make_twin, seeded
from torch import nn

from crossfade.cli import main
from crossfade.errors import UsageError
from crossfade.loading import load_attribute
from crossfade.parity import Divergence, Twin, Verdict, bisect, check
from crossfade.parity.bisecting.trial import Trial
from crossfade.registry import twins
from default_run import few

SMALL = ("trunk", "sac", "grid")


def found(twin, level, **options) -> Divergence:
    divergence = bisect(twin, level, **options)
    assert divergence is not None
    return divergence


# Where and why


@pytest.mark.parametrize(
    ("bug", "operation", "line", "jax_line", "cause"),
    [
        ("LayerNorm eps 1e-6", "layer_norm", "self.norm(self.fc1(x))", "jnp.sqrt(var + eps)", "torch 1e-05, JAX 1e-06"),
        ("GELU by its tanh approximation", "gelu", "F.gelu(", "jax.nn.gelu", "JAX by its tanh approximation"),
        ("LayerNorm after the activation", "layer_norm", "self.norm(", "", "JAX gelu then layer_norm"),
        pytest.param("square kernel not transposed", "linear", "self.fc1(x)", "", "transposed", marks=pytest.mark.slow),
        ("activation forgotten", "tanh", "torch.tanh", "", "tanh is left out in JAX"),
    ],
)
def test_a_bug_in_a_layer_is_named(bug, operation, line, jax_line, cause):
    divergence = found(trunk(bug), "forward")
    assert divergence.torch is not None and divergence.torch.operation == operation
    assert line in divergence.torch.source
    assert cause in divergence.cause
    assert divergence.jax is not None and jax_line in divergence.jax.source


@pytest.mark.parametrize(
    ("make", "bug", "line", "kind"),
    [
        (ppo, "advantage normalised with ddof 0", "advantage.std()", "ddof"),
        pytest.param(ppo, "sum for mean", ".square().mean()", "reduction", marks=pytest.mark.slow),
        pytest.param(td, "truncation not bootstrapped", 'b["terminal"]', "operand", marks=pytest.mark.slow),
    ],
)
def test_a_bug_in_a_loss_is_named(make, bug, line, kind):
    divergence = found(make(bug), "loss")
    assert divergence.kind == kind and divergence.torch is not None and line in divergence.torch.source


def test_a_sum_for_a_mean_is_told_as_the_size_of_the_batch_and_what_agrees_is_listed():
    divergence = found(ppo("sum for mean"), "loss")
    assert "exactly 6 times torch" in divergence.relation
    assert divergence.differ == ("loss",) and set(divergence.agree) == {"entropy", "ratio"}


@pytest.mark.parametrize(
    ("make", "bug", "line", "words"),
    [
        (td, "missing stop_gradient on the target", "backup = ", "torch computes this without gradients"),
        (sac, "sample for rsample", "u = mean + std", "JAX stops the gradient"),
        pytest.param(ppo, "ratio detached", "ratio = torch.exp", "JAX stops the gradient", marks=pytest.mark.slow),
        (ppo, "clamp halves the gradient at its bound", "log_std.clamp", "half the gradient"),
    ],
)
def test_gradients_that_part_at_equal_losses_are_found(make, bug, line, words):
    divergence = found(make(bug), "grad")
    assert divergence.torch is not None and line in divergence.torch.source
    assert words in divergence.cause


@pytest.mark.parametrize(
    ("twin", "level", "kind", "step"),
    [
        (lambda: descent("adam", "Adam eps left at its default"), "update", "eps", None),
        (lambda: descent("adamw", "Adam with decay for AdamW"), "update", "weight decay", None),
        pytest.param(
            lambda: learner("EMA with tau and 1 - tau exchanged"), "update", "momentum", None, marks=pytest.mark.slow
        ),
        (lambda: descent("cosine", "cosine schedule flat after its end"), "updates", "lr", 5),
    ],
)
def test_updates_that_part_are_explained(twin, level, kind, step):
    divergence = found(twin(), level, steps=(1, 6))
    assert divergence.kind == kind and divergence.step == step
    assert divergence.torch is not None and divergence.torch.where


def test_environments_are_searched_too():
    divergence = found(grid("cost with the wrong sign"), "env")
    assert divergence.kind == "sign" and divergence.leaf == "1.reward"
    assert divergence.jax is not None and "else -cost)" in divergence.jax.source
    assert divergence.torch is not None and "reward = 1.0 if goal" in divergence.torch.source


@pytest.mark.slow
def test_the_body_of_a_scan_is_searched():
    def torch_loss(net, b):
        h, total = torch.zeros(4), 0.0
        for x in b["x"]:
            h = torch.tanh(net.fc(x) + 0.9 * h)
            total = total + h.square().mean()
        return total

    def jax_loss(p, b):
        def step(h, x):
            h = jnp.tanh(linear(p["fc"], x[None])[0] + 0.8 * h)
            return h, jnp.square(h).mean()

        return jax.lax.scan(step, jnp.zeros(4), b["x"])[1].sum()

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 4)

    twin = make_twin("scan", seeded(Recurrent), batch={"x": draw(5, 3)}, loss=(torch_loss, jax_loss))
    divergence = found(twin, "loss")
    assert divergence.torch is not None and "0.9 * h" in divergence.torch.source
    assert divergence.jax is not None and "0.8 * h" in divergence.jax.source


def test_an_input_that_jax_does_not_read_is_named():
    """The flags that reset a recurrent state: without them much differs from then on."""

    def torch_forward(net, b):
        h = torch.zeros(2, 4)
        for x, done in zip(b["x"], b["done"], strict=True):
            h = torch.tanh(net(x) + (1 - done)[:, None] * h)
        return h

    def jax_forward(p, b):
        h = jnp.zeros((2, 4))
        for x in b["x"]:
            h = jnp.tanh(linear(p, x) + h)
        return h

    batch = {"x": draw(3, 2, 3), "done": np.array([[0, 0], [0, 1], [1, 0]], np.float32)}
    net = seeded(lambda: nn.Linear(3, 4))
    divergence = found(make_twin("resets", net, batch=batch, forward=(torch_forward, jax_forward)), "forward")
    assert divergence.cause == "JAX does not read batch.done, which torch computes with"


class Residual(nn.Module):
    """Two lines with a norm in each of several blocks: the same bug everywhere is mended by no single line."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.ModuleList(nn.LayerNorm(4) for _ in range(BLOCKS)) for _ in range(2))

    def forward(self, x):
        for first, second in zip(self.first, self.second, strict=True):
            x = x + torch.tanh(first(x))
            x = x + torch.sin(second(x))
        return x


BLOCKS = 8  # through a residual sum there are two ways: walked one by one they would be 2 to the 16


def test_the_same_bug_in_every_layer_is_named_at_the_first():
    def norm(p, i, x, eps=1e-6):
        mean = x.mean(-1, keepdims=True)
        apart = (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + eps)
        return apart * p[str(i)]["weight"][None] + p[str(i)]["bias"][None]

    def jax_forward(p, b):
        x = b["x"]
        for i in range(BLOCKS):
            x = x + jnp.tanh(norm(p["first"], i, x))
            x = x + jnp.sin(norm(p["second"], i, x))
        return x

    forward = (lambda net, b: net(b["x"])), jax_forward
    divergence = found(make_twin("residual", seeded(Residual), batch={"x": draw(5, 4)}, forward=forward), "forward")
    assert divergence.torch is not None and "torch.tanh(first(x))" in divergence.torch.source
    assert "eps of layer_norm: torch 1e-05, JAX 1e-06" in divergence.cause
    assert any("other places differ later" in note for note in divergence.notes)


class Weight(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.3, -0.7, 1.1]))


def test_branches_of_a_cond_are_searched():
    def torch_loss(net, b):
        h = torch.tanh(net.weight * b["x"])
        return (0.9 * h).sum() if b["on"] > 0 else h.square().sum()

    def jax_loss(p, b):
        def on(h):
            return (0.8 * h).sum()

        return jax.lax.cond(b["on"] > 0, on, lambda h: jnp.square(h).sum(), jnp.tanh(p["weight"] * b["x"]))

    batch = {"x": draw(3), "on": np.float32(1)}
    divergence = found(make_twin("cond", seeded(Weight), batch=batch, loss=(torch_loss, jax_loss)), "loss")
    assert divergence.jax is not None and "0.8 * h" in divergence.jax.source
    assert divergence.torch is not None and "0.9 * h" in divergence.torch.source


def test_loops_that_could_not_be_unrolled_are_told():
    def torch_loss(net, b):
        return sum((i * net.weight * b["x"]).sum() for i in range(3))

    def jax_loss(p, b):
        def step(i, total):
            return total + 2 * (i.astype(total.dtype) * p["weight"] * b["x"]).sum()  # without jit i is Python's

        return jax.lax.fori_loop(0, 3, step, jnp.zeros(()))

    twin = make_twin("rolled", seeded(Weight), batch={"x": draw(3)}, loss=(torch_loss, jax_loss))
    assert any("rolled up" in note and "AttributeError" in note for note in found(twin, "loss").notes)
    assert not found(ppo("sum for mean"), "loss").notes


def test_a_world_that_cannot_run_without_jit_is_told():
    class Host:
        def reset(self, key):
            return {"x": np.float64(1.0)}

        def step(self, state, action):
            return {"x": state["x"] + 3.0}, {"reward": 0.0}

    class Compiled(Host):
        def step(self, state, action):
            add = lambda i, total: total + 2 * i.astype(total.dtype)  # without jit i is Python's
            return {"x": jax.lax.fori_loop(0, 3, add, jnp.asarray(state["x"]))}, {"reward": 0.0}

    divergence = found(Twin("loop", env=(Host(), Compiled()), actions=np.zeros(2, int)), "env")
    assert any("line by line" in note and "AttributeError" in note for note in divergence.notes)
    assert not found(grid("cost with the wrong sign"), "env").notes[:-1]


def test_changes_that_cannot_be_run_are_counted():
    trial = Trial(trunk(), trunk().mapping, "forward")
    assert trial.attempt({1: lambda f, a, k: 1 / 0}) is None
    assert trial.refused == {"ZeroDivisionError": 1}


def test_a_target_that_follows_too_late_is_told_by_its_numbers():
    divergence = found(learner("EMA from the weights before the update"), "update")
    assert "after the update, JAX moves 0.05 of the way to out." in divergence.cause
    assert divergence.torch is not None and "slow.lerp_(fast, 0.05)" in divergence.torch.source


@pytest.mark.parametrize(
    ("bug", "jax_line", "words"),
    [
        ("penalty held fixed", "stop_gradient(discriminator)", "JAX stops the gradient"),
        pytest.param(
            "slope through the first layer alone",
            "stop_gradient(discriminator.layers[1:])",
            "JAX",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_detach_of_the_jax_half_is_named_at_its_line(bug, jax_line, words):
    divergence = found(amp_loss(bug), "grad")
    assert divergence.kind == "detach" and words in divergence.cause
    assert divergence.jax is not None and jax_line in divergence.jax.source


@pytest.mark.slow
def test_halves_that_run_on_the_host_are_compared_by_their_names():
    divergence = found(amp_motion("feature of another joint"), "rollout")
    assert divergence.kind == "order" and "qpos" in divergence.cause
    assert divergence.jax is not None and "jnp.roll(qpos[:, 7:], 1, axis=-1)" in divergence.jax.source
    assert divergence.torch is not None and "qpos" in divergence.torch.source


@pytest.mark.parametrize("name", few([*CLEAN, *twins()], *SMALL, "policy_value"))
def test_nothing_is_found_in_clean_twins(name):
    twin = CLEAN[name]() if name in CLEAN else load_attribute(twins()[name].target, Twin)
    for level in ("forward", "loss", "grad", "update", "env", "rollout"):
        if twin.missing(level) is None:
            assert bisect(twin, level) is None, level


def test_all_elements_equal_and_zero_do_not_mislead():
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        module[0].weight.zero_()
        module[0].bias.fill_(-1.0)  # relu gives zeros
    twin = make_twin(
        "zeros", module, lambda p, x: linear(p["2"], jax.nn.relu(linear(p["0"], x))) * 1.5, batch=draw(4, 3)
    )
    divergence = found(twin, "forward")
    assert divergence.torch is not None and divergence.torch.operation == "linear"
    assert "1.5" in divergence.relation or divergence.kind == "factor"


# Words and formats


def test_a_report_carries_the_place_in_every_format(tmp_path):
    report = check(trunk("LayerNorm eps 1e-6"), dtype="float64", bisect=True)
    assert report.verdict is Verdict.DIFFERENT and report.first is not None
    assert "Cause: eps of layer_norm: torch 1e-05, JAX 1e-06" in report.text()
    assert "mutants_nets.py" in report.text()
    told = json.loads(report.save(tmp_path / "report.json").read_text())["first"]["divergence"]
    assert told["kind"] == "eps" and told["torch"]["operation"] == "layer_norm"
    page = report.save(tmp_path / "report.html").read_text()
    assert "eps of layer_norm: torch 1e-05, JAX 1e-06" in page and "self.norm(self.fc1(x))" in page


def test_wrong_usage_is_told():
    with pytest.raises(UsageError, match=re.escape("Did you mean 'forward'")):
        bisect(trunk(), "foward")
    with pytest.raises(UsageError, match="needs loss="):
        bisect(trunk(), "loss")


def test_the_command_line_bisects(tmp_path, capsys):
    assert main(["parity", f"{__name__}:broken", "--bisect", "--runs-dir", str(tmp_path)]) == 1
    assert "Cause:" in capsys.readouterr().out


def broken():
    """A twin for the command line."""
    return trunk("LayerNorm eps 1e-6")


def test_the_suite_is_large():
    assert len(MUTANTS) >= 120
    assert np.unique([mutant.level for mutant in MUTANTS]).size == 8
