"""Places that cannot be read or written, full disks and odd arguments: a clear error, and nothing half done."""

import errno
import inspect
import io
import os

import numpy as np
import pytest

from crossfade import checkpoint
from crossfade.checkpoint import formats, writer
from crossfade.errors import CheckpointError, CrossfadeError, UsageError

ARRAYS = {"w": np.arange(4.0), "b": np.zeros(2)}
EXPORTS = {
    "torch": checkpoint.export_torch,
    "safetensors": checkpoint.export_safetensors,
    "npz": checkpoint.export_npz,
    "orbax": checkpoint.export_orbax,
}
IMPORTS = {
    "torch": checkpoint.import_torch,
    "safetensors": checkpoint.import_safetensors,
    "npz": checkpoint.import_npz,
    "orbax": checkpoint.import_orbax,
}


def places(folder):
    """Paths at which nothing can be, or nothing good is."""
    (folder / "file").write_text("a file")
    (folder / "loop").symlink_to("loop")
    (folder / "nowhere").symlink_to("missing/deeper")
    (folder / "empty").mkdir()
    os.mkfifo(folder / "pipe")
    return {
        "name too long": folder / ("n" * 300),
        "path too long": folder / "/".join(["n" * 200] * 30),
        "digits too long": folder / ("9" * 5000),
        "zero byte": f"{folder}/a\0b",
        "no text": f"{folder}/\ud800",
        "under a file": folder / "file" / "x",
        "a file": folder / "file",
        "loop": folder / "loop",
        "under a loop": folder / "loop" / "x",
        "dangling": folder / "nowhere",
        "missing": folder / "missing",
        "empty": folder / "empty",
        "pipe": folder / "pipe",
        "root": "/",
        "here": ".",
    }


PLACES = [
    "name too long",
    "path too long",
    "digits too long",
    "zero byte",
    "no text",
    "under a file",
    "a file",
    "loop",
    "under a loop",
    "dangling",
    "missing",
    "empty",
    "pipe",
    "root",
    "here",
]
READERS = {
    "load": checkpoint.load,
    "latest": checkpoint.latest,
    "convert": lambda path: checkpoint.convert(path, "npz"),
    "recognise": formats.recognise,
    **{f"import_{name}": read for name, read in IMPORTS.items()},
}


@pytest.mark.parametrize("place", PLACES)
def test_reading_where_nothing_good_is_gives_a_clear_error(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    path = places(tmp_path)[place]
    for name, read in READERS.items():
        if place == "pipe" and name.startswith("import_") and name != "import_safetensors":
            continue  # torch, NumPy and orbax wait for a writer, as they do elsewhere
        with pytest.raises(CrossfadeError, match="expected"):
            read(path)


@pytest.mark.parametrize("place", [p for p in PLACES if p not in ("missing", "empty", "root", "here", "dangling")])
def test_saving_where_nothing_can_be_gives_a_clear_error_and_leaves_the_earlier_bundle(tmp_path, place):
    path = places(tmp_path)[place]
    with pytest.raises(CheckpointError, match="expected"):
        checkpoint.save(path, params=ARRAYS)
    assert (tmp_path / "file").read_text() == "a file"


@pytest.mark.parametrize("place", [p for p in PLACES if p not in ("missing", "root", "here")])
@pytest.mark.parametrize("name", EXPORTS)
def test_exporting_where_nothing_can_be_gives_a_clear_error(tmp_path, name, place):
    path = places(tmp_path)[place]
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(CheckpointError, match="expected"):
        EXPORTS[name](ARRAYS, path)
    assert sorted(os.listdir(tmp_path)) == before and (tmp_path / "file").read_text() == "a file"


class Full(io.FileIO):
    """A file on a disk with little room."""

    room = 100

    def write(self, data):
        if len(memoryview(data)) > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


@pytest.mark.parametrize("name", [name for name in EXPORTS if name != "orbax"])
def test_exporting_to_a_full_disk_leaves_nothing(tmp_path, monkeypatch, name):
    monkeypatch.setattr(formats, "open", lambda path, mode: Full(path, mode), raising=False)
    (tmp_path / "out.tmp").write_text("mine")
    with pytest.raises(CheckpointError, match="out: expected to write the file, got .*Free some space"):
        EXPORTS[name]({"w": np.zeros(1000)}, tmp_path / "out")
    assert os.listdir(tmp_path) == ["out.tmp"] and (tmp_path / "out.tmp").read_text() == "mine"


def test_saving_to_a_full_disk_leaves_the_earlier_bundle(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, params=ARRAYS, step=1)
    for step in (1, 2):
        monkeypatch.setattr(writer, "open", lambda path, mode: Full(path, mode), raising=False)
        with pytest.raises(CheckpointError, match="No space left on device.*earlier bundles are untouched"):
            checkpoint.save(tmp_path, params={"w": np.zeros(1000)}, step=step)
        monkeypatch.undo()
        assert os.listdir(tmp_path) == ["0000000001"]
        assert np.array_equal(checkpoint.load(tmp_path, side="numpy").params["w"], ARRAYS["w"])


def test_a_replacement_that_fails_is_undone(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, params=ARRAYS, step=1)
    real, calls = os.rename, []

    def rename(*args, **kwargs):
        calls.append(args)
        if len(calls) == 2:  # the old one is moved away, the new one is not there yet
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(*args, **kwargs)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(CheckpointError, match="Input/output error"):
        checkpoint.save(tmp_path, params={"w": np.zeros(2)}, step=1)
    assert os.listdir(tmp_path) == ["0000000001"]
    assert np.array_equal(checkpoint.load(tmp_path, side="numpy").params["w"], ARRAYS["w"])


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_told(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    for write in (lambda p: checkpoint.save(p, params=ARRAYS), lambda p: checkpoint.export_npz(ARRAYS, p / "a.npz")):
        with pytest.raises(CheckpointError, match="Permission denied"):
            write(tmp_path / "locked")


def test_a_file_that_claims_more_than_there_is_memory_is_refused(tmp_path):
    (tmp_path / "big").touch()
    os.truncate(tmp_path / "big", 1 << 43)
    with pytest.raises(CheckpointError, match="big: expected to read the file"):
        checkpoint.import_safetensors(tmp_path / "big")


def deep(levels):
    node = []
    for _ in range(levels):
        node = [node]
    return node


def circle():
    node = {}
    node["again"] = node
    return node


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"step": -1}, UsageError, "step: expected an integer from 0"),
        ({"step": 1.0}, UsageError, "step: expected an integer from 0 .*got 1.0"),
        ({"step": True}, UsageError, "step: expected an integer"),
        ({"step": "7"}, UsageError, "step: expected an integer"),
        ({"step": 10**18}, UsageError, "step: expected an integer"),
        ({"keep": 0}, UsageError, "keep: expected an integer from 1"),
        ({"keep": "3"}, UsageError, "keep: expected an integer from 1"),
        ({"meta": [1]}, UsageError, "meta: expected a dict, got list"),
        ({"meta": {"a": deep(300)}}, CheckpointError, "at most 100 levels"),
        ({"replay": circle()}, CheckpointError, "at most 100 levels"),
        ({"meta": {"a": 1 << 20_000}}, CheckpointError, "at most 10000 bits"),
        ({"key": np.zeros(3, np.uint32)}, CheckpointError, "key: expected"),
    ],
)
def test_what_could_not_be_loaded_again_is_not_saved(tmp_path, options, error, words):
    save = inspect.unwrap(checkpoint.save)  # users have no type checker in front of it
    with pytest.raises(error, match=words):
        save(tmp_path / "new", params=ARRAYS, **options)
    assert not (tmp_path / "new").exists()


def test_as_deep_as_may_be_saved_can_be_loaded(tmp_path):
    checkpoint.save(tmp_path, params=ARRAYS, meta={"a": deep(98)}, replay=deep(99))
    assert checkpoint.load(tmp_path, side="numpy").meta == {"a": deep(98)}


def test_converting_never_writes_into_a_folder_that_is_there(tmp_path):
    for step in range(5):
        checkpoint.save(tmp_path / "bundles", params=ARRAYS, step=step, keep=None)
    source = checkpoint.export_npz(ARRAYS, tmp_path / "a.npz")
    with pytest.raises(CheckpointError, match="bundles: expected a new name"):
        checkpoint.convert(source, "bundle", tmp_path / "bundles")
    assert len(checkpoint.list_bundles(tmp_path / "bundles")) == 5


@pytest.mark.parametrize("source", [".", "/"])
def test_a_source_without_a_name_asks_for_a_place(tmp_path, monkeypatch, source):
    monkeypatch.chdir(checkpoint.save(tmp_path, params=ARRAYS))
    with pytest.raises(CrossfadeError, match="pass out=|expected a bundle"):
        checkpoint.convert(source, "npz")
