"""convert as a user meets it: one state dict out of a torch file that holds several."""

import json

import numpy as np
import pytest
import torch

from crossfade import checkpoint
from crossfade.cli import main


@pytest.fixture
def several(tmp_path):
    """What a training script keeps of a run."""
    actor, critic = torch.nn.Linear(2, 3), torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(actor.parameters())
    file = tmp_path / "run.tar"
    states = {"actor": actor.state_dict(), "critic": critic.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({**states, "epoch": 3}, file)
    return file, actor


def test_a_file_of_several_state_dicts_asks_for_one_of_them(several, capsys):
    file, _ = several
    assert main(["convert", str(file), "--to", "npz"]) == 1
    error = capsys.readouterr().err
    assert "--entry actor" in error and "there are actor, critic, optimizer" in error


@pytest.mark.parametrize("to", ["npz", "torch", "bundle"])
def test_an_entry_is_taken_out(several, to, capsys):
    file, actor = several
    assert main(["convert", str(file), "--to", to, "--entry", "actor", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)["written"]
    assert "run.actor." in written
    read = {"npz": checkpoint.import_npz, "torch": checkpoint.import_torch}
    found = read[to](written) if to in read else checkpoint.load(written, side="numpy").params
    assert {name: array.tolist() for name, array in found.items()} == {
        name: array.tolist() for name, array in actor.state_dict().items()
    }


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--entry", "acter"], 2, "Did you mean 'actor'"),
        (["--entry", "optimizer"], 1, "expected a state dict of tensors only"),
        (["--entry", "epoch"], 1, "got int"),
        (["--entry", "actor", "--to", "upstream"], 2, "becomes a bundle first"),
    ],
)
def test_an_entry_that_is_none_is_refused(several, words, code, message, capsys):
    file, _ = several
    assert main(["convert", str(file), *words]) == code
    assert message in capsys.readouterr().err


def test_an_entry_of_a_file_without_entries_is_refused(tmp_path, capsys):
    np.savez(tmp_path / "a.npz", w=np.ones(2))
    assert main(["convert", str(tmp_path / "a.npz"), "--entry", "w"]) == 2
    assert "expected a torch file to take entry 'w' from, got a npz" in capsys.readouterr().err
