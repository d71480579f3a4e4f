"""The command line as a user meets it: results, messages and exit codes."""

import json
import subprocess
import sys
import textwrap

import pytest

from crossfade.cli import main

MODELS = """
import equinox as eqx, jax, torch
from torch import nn

class TorchNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 2)
    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))

class JaxNet(eqx.Module):
    out: eqx.nn.Linear
    hidden: eqx.nn.Linear
    def __init__(self, out=2):
        a, b = jax.random.split(jax.random.key(0))
        self.hidden, self.out = eqx.nn.Linear(3, 5, key=a), eqx.nn.Linear(5, out, key=b)
    def __call__(self, x):
        return self.out(jax.numpy.tanh(self.hidden(x)))

def wrong_net():
    return JaxNet(out=4)

class ReluNet(JaxNet):
    def __call__(self, x):
        return self.out(jax.nn.relu(self.hidden(x)))
"""


@pytest.fixture
def models(tmp_path, monkeypatch):
    """A user's module in the current folder."""
    (tmp_path / "their_models.py").write_text(textwrap.dedent(MODELS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "their_models", raising=False)


def test_list_names_everything_that_can_be_asked_for(capsys):
    assert main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(listed["modes"]) == {"torch", "torch_pure", "jax_minimal", "jax_policy", "jax_full"}
    assert "policy_value" in listed["parity"] and "bridge" in listed["bench"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["lst"], "Did you mean 'list'?"),
        (["parity", "policy_vale"], "Did you mean 'policy_value'?"),
        (["parity", "no.such.module:twin"], "no module named 'no'"),
        (["parity", "crossfade.parity.cases:policy_valu"], "Did you mean 'policy_value'?"),
        (["bench", "brige"], "Did you mean 'bridge'?"),
        (["doctor", "their_models:TorchNet"], "expected pairs"),
        (["doctor", "their_models:TorchNet", "their_models:JaxNet", "--input", "4by3"], "expected a shape such as 4x8"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_one(words, hint, capsys, models):
    assert main(words) == 2
    assert hint in capsys.readouterr().err


def test_an_unknown_option_is_answered_with_the_nearest_one(capsys):
    assert main(["parity", "policy_value", "--lvel=grad"]) == 2
    assert "unknown option '--lvel'. Did you mean '--level'?" in capsys.readouterr().err


def test_a_value_that_an_option_does_not_know_exits_with_two():
    with pytest.raises(SystemExit) as stop:
        main(["parity", "policy_value", "--level=grid"])
    assert stop.value.code == 2


def test_parity_prints_a_verdict_and_writes_a_page(capsys, tmp_path):
    assert main(["parity", "policy_value", "level=grad", "--runs-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "ROUNDING" in out
    assert "<html" in (tmp_path / "parity" / "policy_value.html").read_text()


def test_doctor_reports_versions_and_extras(capsys):
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["versions"]["torch"] and found["missing_extras"] == []


def test_doctor_matches_and_proves_the_users_own_models(capsys, models):
    assert main(["doctor", "their_models:TorchNet", "their_models:JaxNet"]) == 0
    out = capsys.readouterr().out
    assert "first.weight" in out and "hidden.weight" in out and "ROUNDING" in out


@pytest.mark.parametrize(("broken", "words"), [("wrong_net", "the same outputs"), ("ReluNet", "first.weight")])
def test_doctor_fails_on_models_that_differ(broken, words, capsys, models):
    assert main(["doctor", "their_models:TorchNet", f"their_models:{broken}", "--input", "4x3"]) == 1
    assert words in capsys.readouterr().out


def test_the_installed_command_runs():
    done = subprocess.run([sys.executable, "-m", "crossfade", "list"], capture_output=True, text=True, check=True)
    assert "policy_value" in done.stdout
