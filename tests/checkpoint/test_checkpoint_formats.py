"""Weights in and out of the formats of others; nothing is ever unpickled."""

import io
import os
import pickle
import zipfile

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
import safetensors.torch
import torch
from bits import same
from torch import nn

from crossfade import checkpoint
from crossfade.errors import CheckpointError, UsageError

EXPORT = {
    "torch": checkpoint.export_torch,
    "safetensors": checkpoint.export_safetensors,
    "npz": checkpoint.export_npz,
    "orbax": checkpoint.export_orbax,
}
IMPORT = {
    "torch": checkpoint.import_torch,
    "safetensors": checkpoint.import_safetensors,
    "npz": checkpoint.import_npz,
    "orbax": checkpoint.import_orbax,
}


@pytest.fixture
def weights(arrays):
    """Also what these formats tend to lose: 64 bits, truth values, and awkward names."""
    odd = {"file": np.arange(2), "../up": np.array([True, False]), "a/b": np.arange(3.0), "strided": np.ones((2, 3)).T}
    return arrays | odd


@pytest.mark.parametrize("form", EXPORT)
def test_what_is_exported_is_imported_equal(tmp_path, weights, form):
    path = EXPORT[form](weights, tmp_path / "in" if form == "orbax" else tmp_path / "weights")
    loaded = IMPORT[form](path)
    assert loaded.keys() == weights.keys()
    assert all(same(loaded[name], weights[name]) for name in weights)
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.parametrize("form", ["torch", "safetensors", "orbax"])
def test_bfloat16_passes(tmp_path, form):
    low = {"w": np.arange(4).astype(ml_dtypes.bfloat16)}
    assert same(IMPORT[form](EXPORT[form](low, tmp_path / "weights"))["w"], low["w"])


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="npz cannot hold bfloat16"):
        checkpoint.export_npz({"w": np.ones(1, ml_dtypes.bfloat16)}, tmp_path / "w.npz")
    with pytest.raises(CheckpointError, match="orbax cannot hold an empty array"):
        checkpoint.export_orbax({"w": np.ones(0)}, tmp_path / "w")
    assert os.listdir(tmp_path) == []


def test_others_read_what_is_exported(tmp_path, arrays):
    files = {form: str(EXPORT[form](arrays, tmp_path / form)) for form in EXPORT}
    with ocp.StandardCheckpointer() as checkpointer:
        orbax = checkpointer.restore(files["orbax"])
    read = [
        torch.load(files["torch"], weights_only=True),
        safetensors.torch.load_file(files["safetensors"]),
        np.load(files["npz"], allow_pickle=False),
        orbax,
    ]
    for loaded in read:
        assert all(same(loaded[name], arrays[name]) for name in arrays)


def test_others_files_are_read(tmp_path, arrays):
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    torch.save(tensors, tmp_path / "new.pt")
    torch.save(tensors, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    safetensors.torch.save_file(tensors, tmp_path / "w.safetensors", metadata={"format": "pt"})
    np.savez_compressed(tmp_path / "w.npz", **arrays)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save((tmp_path / "orbax").absolute(), arrays)
    for name in ("new.pt", "old.pt", "w.safetensors", "w.npz", "orbax"):
        checkpoint.convert(tmp_path / name, "bundle", tmp_path / "bundles" / name)
        loaded = checkpoint.load(tmp_path / "bundles" / name, side="numpy").params
        assert all(same(loaded[n], arrays[n]) for n in arrays), name


def test_a_nested_orbax_tree_is_named_by_its_paths(tmp_path):
    tree = {"params": {"Dense_0": {"kernel": np.ones((2, 3), np.float32)}, "list": [np.zeros(1), np.ones(1)]}}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "flax", tree)
    assert set(checkpoint.import_orbax(tmp_path / "flax")) == {
        "params.Dense_0.kernel",
        "params.list.0",
        "params.list.1",
    }


def test_tied_weights_stay_tied_in_a_torch_file(tmp_path):
    w = torch.ones(2, 2)
    checkpoint.save(tmp_path / "bundle", params={"a": w, "b": w})
    checkpoint.convert(tmp_path / "bundle", "torch", tmp_path / "w.pt")
    loaded = torch.load(tmp_path / "w.pt", weights_only=True)
    assert loaded["a"].data_ptr() == loaded["b"].data_ptr()
    checkpoint.convert(tmp_path / "w.pt", "bundle", tmp_path / "again")
    assert checkpoint.load(tmp_path / "again").manifest["aliases"] == {"b": "a"}


def test_one_entry_of_a_larger_torch_file_can_be_named(tmp_path):
    torch.save({"model": {"w": torch.ones(2)}, "epoch": 3}, tmp_path / "run.pt")
    with pytest.raises(
        CheckpointError, match=r"model: dict, epoch: int.*--entry model \(in Python entry='model'\); there are model\."
    ):
        checkpoint.import_torch(tmp_path / "run.pt")
    assert same(checkpoint.import_torch(tmp_path / "run.pt", entry="model")["w"], np.ones(2, np.float32))
    with pytest.raises(UsageError, match="Did you mean 'model'"):
        checkpoint.import_torch(tmp_path / "run.pt", entry="modle")


@pytest.mark.parametrize("to", ["torch", "safetensors", "npz", "orbax", "jax"])
def test_convert_takes_bundles_and_their_folders_and_lands_beside_them(bundle, arrays, to):
    with pytest.warns(UserWarning, match="left out: normalizer, key, replay"):
        written = checkpoint.convert(bundle.parent, to)
    assert written.parent == bundle.parent.parent and written.stem.startswith("checkpoints")
    back = checkpoint.convert(written, "bundle", bundle.parent.parent / "back")
    assert all(same(a, arrays[n]) for n, a in checkpoint.load(back, side="numpy").params.items())


def test_convert_refuses_unknown_targets_existing_files_and_idle_work(bundle):
    with pytest.raises(UsageError, match="Did you mean 'orbax'"):
        checkpoint.convert(bundle, "orbx")
    with pytest.raises(UsageError, match="a bundle already"):
        checkpoint.convert(bundle, "bundle")
    out = bundle.parent.parent / "w.pt"
    out.write_text("precious")
    with pytest.raises(CheckpointError, match="got one that exists"), pytest.warns(UserWarning, match="weights only"):
        checkpoint.convert(bundle, "torch", out)
    assert out.read_text() == "precious"


class Exploit:
    """Unpickling this would make a folder."""

    def __reduce__(self):
        return os.mkdir, ("pwned",)


def torch_bytes(value, **options) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, **options)
    return file.getvalue()


def npz_bytes(value) -> bytes:
    file = io.BytesIO()
    np.savez(file, w=value, allow_pickle=True)
    return file.getvalue()


def zip_bytes(**members) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), data)
    return file.getvalue()


def claim(shape: str) -> bytes:
    """An .npy member whose header claims a shape."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


HOSTILE = {
    "a module": lambda: torch_bytes(nn.Linear(1, 1)),
    "an exploit in a torch file": lambda: torch_bytes({"w": Exploit()}),
    "an exploit in an old torch file": lambda: torch_bytes(Exploit(), _use_new_zipfile_serialization=False),
    "a bare pickle": lambda: pickle.dumps(Exploit()),
    "a truncated torch file": lambda: torch_bytes({"w": torch.ones(99)})[:400],
    "a torch file of something else": lambda: torch_bytes([torch.ones(1)]),
    "a zip with a rotten pickle": lambda: zip_bytes(archive__data_pkl=b"\x80rubbish", archive__version=b"3"),
    "objects in npz": lambda: npz_bytes(np.array([Exploit()], dtype=object)),
    "a truncated npz": lambda: npz_bytes(np.ones(99))[:-80],
    "a rotten npz": lambda: zip_bytes(w_npy=b"rubbish"),
    "an npz of absurd shape": lambda: zip_bytes(w_npy=claim("(1099511627776,)")),
    "an npz of negative shape": lambda: zip_bytes(w_npy=claim("(-1,)")),
    "a zip of something else": lambda: zip_bytes(readme_txt=b"hello"),
    "a safetensors file of absurd header": lambda: (2**40).to_bytes(8, "little") + b"{}",
    "text": lambda: b"hello, I am a checkpoint",
    "nothing": lambda: b"",
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")
def test_hostile_and_damaged_files_of_others_are_refused(tmp_path, monkeypatch, case):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(HOSTILE[case]())
    with pytest.raises(CheckpointError, match="file: expected"):
        checkpoint.convert(tmp_path / "file", "bundle", tmp_path / "out")
    assert os.listdir(tmp_path) == ["file"]


def test_the_exploit_would_work_where_pickles_are_loaded(tmp_path, monkeypatch):
    """The guard of the table above."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Exploit()))
    assert os.listdir(tmp_path) == ["pwned"]


def test_a_damaged_orbax_folder_is_refused(tmp_path):
    checkpoint.export_orbax({"w": np.ones(3)}, tmp_path / "orbax")
    (tmp_path / "orbax" / "_METADATA").write_text("{")
    with pytest.raises(CheckpointError, match="orbax: expected"):
        checkpoint.convert(tmp_path / "orbax", "npz")


def test_a_missing_source_is_told(tmp_path):
    for load in (
        checkpoint.import_torch,
        checkpoint.import_npz,
        checkpoint.import_safetensors,
        checkpoint.import_orbax,
    ):
        with pytest.raises(CheckpointError, match="nowhere: expected"):
            load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="nothing at that path"):
        checkpoint.convert(tmp_path / "nowhere", "torch")
