"""The bench of a user's own code: every contender does the same work, and the command line finds it."""

import itertools
import json

import numpy as np
import pytest
import torch
from torch import nn

from crossfade import cli
from crossfade.bench.own_contenders import contenders
from crossfade.errors import UsageError
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


@pytest.mark.parametrize(
    ("own", "words"),
    [((1, 2), "expected a parity.Twin, or"), (Twin("nothing"), "it lacks loss= and optimizer=")],
    ids=["a pair", "a twin without a loss"],
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
