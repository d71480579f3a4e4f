"""The bench of a user's own code: every contender does the same work, and the command line finds it."""

import itertools
import json

import numpy as np
import pytest
import torch
from torch import nn

from crossfade import cli
from crossfade.bench.bridge_worker import measure
from crossfade.bench.own_contenders import contenders
from crossfade.errors import UsageError, UserCodeError
from crossfade.parity import Twin
from crossfade.parity.cases import policy_value


def regression():
    """What `accelerate` takes, before any JAX was written."""
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    batch = {"x": torch.randn(4, 3), "y": torch.randn(4, 2)}
    loss = lambda net, batch: ((net(batch["x"]) - batch["y"]) ** 2).mean()
    return loss, net, torch.optim.Adam(net.parameters(), 1e-2), batch


def losses(own, names):
    makers = own.makers()
    return {name: [run() for run in itertools.repeat(makers[name](), 4)] for name in names}


@pytest.mark.slow
def test_contenders_of_a_twin_do_the_same_work():
    own = contenders(policy_value, "cases:policy_value")
    assert list(own.makers()) == ["torch eager", "torch.compile", "accelerate", "bridge.Step", "JAX by hand"]
    found = losses(own, ("torch eager", "accelerate", "bridge.Step", "JAX by hand"))
    assert len(set(found["torch eager"])) == 4
    for name, values in found.items():
        np.testing.assert_allclose(values, found["torch eager"], rtol=1e-4, err_msg=name)


def test_contenders_of_torch_alone_do_the_same_work():
    own = contenders(regression, "here:regression")
    assert list(own.makers()) == ["torch eager", "torch.compile", "accelerate"]
    found = losses(own, ("torch eager", "accelerate"))
    np.testing.assert_allclose(found["accelerate"], found["torch eager"], rtol=1e-5)


def closed_over():
    """As agents are written: the loss reads its networks from around it."""
    actor, critic = nn.Linear(3, 2), nn.Linear(3, 1)
    batch = {"x": torch.randn(4, 3), "y": torch.randn(4, 2)}

    def loss(batch):
        return ((actor(batch["x"]) - batch["y"]) ** 2).mean() + critic(batch["x"]).square().mean()

    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], 1e-2)
    return loss, [actor, critic], optimizer, batch, {"clip_norm": 0.1}


def test_a_loss_that_reads_its_networks_from_around_it_trains_them_in_every_contender():
    """Each contender has networks of its own: had two the same, the second would begin where the first ended."""
    found = losses(contenders(closed_over, "here:closed_over"), ("torch eager", "accelerate"))
    assert found["torch eager"][-1] < found["torch eager"][0]
    np.testing.assert_allclose(found["accelerate"], found["torch eager"], rtol=1e-5)


def counting():
    """What cannot be compiled, neither by torch nor by JAX."""
    loss, net, optimizer, batch = regression()
    return lambda net, batch: loss(net, batch) * (2 if float(batch["x"].sum()) > 0 else 1), net, optimizer, batch


def test_what_cannot_be_accelerated_is_left_out_with_its_reason(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda loss: lambda *given: torch._dynamo.graph_break() or 1 / 0)
    found = measure(contenders(counting, "here:counting").makers(), rounds=1, seconds=1e-4)
    assert "median_us" in found["torch eager"]
    assert "takes a number out of a tensor" in found["accelerate"]["unavailable"]
    assert "ZeroDivisionError" in found["torch.compile"]["unavailable"]


def broken():
    loss, net, optimizer, _ = regression()
    return loss, net, optimizer, {"x": torch.randn(4, 2), "y": torch.randn(4, 2)}


def test_a_loss_that_fails_in_torch_is_told_with_the_users_line():
    with pytest.raises(UserCodeError, match=r"one update in plain torch failed: RuntimeError.*test_own_bench.py, line"):
        contenders(broken, "here:broken").makers()["torch eager"]()


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ((1, 2), r"expected a parity.Twin, or .* got \(int, int\)"),
        (Twin("nothing"), "it lacks loss= and optimizer="),
        (closed_over(), r"def own\(\)"),
        ((*regression(), {"clip": 1}), "expected options of accelerate .*clip_norm"),
    ],
    ids=["a pair", "a twin without a loss", "a closure made once", "other options"],
)
def test_what_cannot_be_trained_is_refused(own, words):
    with pytest.raises(UsageError, match=words):
        contenders(own, "here:own")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["bench", "climb"])
def test_the_command_line_takes_a_users_twin(verb, capsys, tmp_path):
    more = ["--quick"] if verb == "bench" else []
    words = [verb, "crossfade.parity.cases:policy_value", "--json", "--runs-dir", str(tmp_path), *more]
    assert cli.main(words) in (0, None)
    record = json.loads(capsys.readouterr().out)
    if verb == "climb":
        assert record["parity"]["verdict"] in ("EQUAL", "ROUNDING")
        record = record["bench"]
    found = record["processes"][0]["nets"]["policy_value"]
    assert {"torch eager", "accelerate", "bridge.Step", "JAX by hand"} <= found.keys()
    assert all("median_us" in figures or "unavailable" in figures for figures in found.values())


def test_a_misspelt_twin_is_a_usage_error(capsys):
    assert cli.main(["bench", "crossfade.parity.cases:policy_valu"]) == 2
    assert "Did you mean 'policy_value'?" in capsys.readouterr().err


def test_an_update_in_torch_alone_cannot_be_climbed(capsys, monkeypatch, tmp_path):
    (tmp_path / "my_code.py").write_text("def update():\n    return None, None, None, None\n")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["climb", "my_code:update"]) == 2
    assert "crossfade bench my_code:update" in " ".join(capsys.readouterr().err.split())


def test_standard_output_is_for_results_only(capsys, monkeypatch, tmp_path):
    code = "print('loading')\nfrom crossfade.parity.cases import policy_value as twin\n"
    (tmp_path / "talking.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["parity", "talking:twin", "--level", "map", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["verdict"] and "loading" in said.err


def test_an_error_inside_of_a_users_twin_is_told_with_its_line(capsys, monkeypatch, tmp_path):
    code = """
import dataclasses
from crossfade.parity.cases import policy_value

def jax_loss(model, batch):
    return batch["reward"]

def twin():
    own = policy_value()
    return dataclasses.replace(own, loss=(own.loss[0], jax_loss))
"""
    (tmp_path / "raising.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["parity", "raising:twin"]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "proving raising:twin failed: KeyError: 'reward'" in said and "raising.py, line 6" in said


@pytest.mark.slow
def test_a_process_tells_what_is_wrong_with_the_users_code(capsys, monkeypatch, tmp_path):
    code = "print('loading', end='')\ndef update():\n    return 1, 2\ndef late():\n    raise ValueError('no data')\n"
    (tmp_path / "their_code.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "their_code:update", "--quick"]) == 2
    assert "got (int, int)" in " ".join(capsys.readouterr().err.split())
    assert cli.main(["bench", "their_code:late", "--quick"]) == 1
    said = capsys.readouterr().err
    assert "calling their_code:late failed: ValueError: no data" in " ".join(said.split())
    assert "Traceback" not in said
