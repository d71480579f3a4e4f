"""The folder of bundles: what is kept, what is replaced, what dead and failing writers leave."""

import errno
import os
import shutil
import threading

import numpy as np
import pytest

from crossfade import checkpoint
from crossfade.checkpoint import writer
from crossfade.errors import CheckpointError


def save(root, step, value=0.0, **options):
    return checkpoint.save(root, params={"w": np.full(4, value)}, step=step, **options)


def steps(root) -> list[int]:
    return [int(bundle.name) for bundle in checkpoint.list_bundles(root)]


def value(path) -> float:
    return checkpoint.load(path, side="numpy").params["w"][0]


@pytest.mark.parametrize(
    ("keep", "saved", "left"),
    [
        (3, [1, 2, 3, 4, 5], [3, 4, 5]),
        (1, [1, 2], [2]),
        (None, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
        (2, [9, 10, 11], [10, 11]),
        (2, [9_999_999_999, 10_000_000_000], [9_999_999_999, 10_000_000_000]),  # more digits, still in order
        (2, [10, 20, 30, 15], [15, 20, 30]),  # went back: what was just saved stays
    ],
)
def test_the_last_few_are_kept(tmp_path, keep, saved, left):
    for step in saved:
        save(tmp_path, step, keep=keep)
    assert steps(tmp_path) == left
    assert checkpoint.latest(tmp_path).name == f"{left[-1]:010d}"
    assert len(os.listdir(tmp_path)) == len(left)


def test_save_returns_the_bundle_and_load_takes_bundle_or_folder(tmp_path):
    first, second = save(tmp_path, 1, 1.0), save(tmp_path, 2, 2.0)
    assert first == tmp_path / "0000000001"
    assert (value(first), value(second), value(tmp_path)) == (1.0, 2.0, 2.0)


def test_a_folder_of_bundles_may_be_named_like_one(tmp_path):
    """Runs are often named by the second they started in."""
    save(tmp_path / "1763236800", 3, 3.0)
    assert value(tmp_path / "1763236800") == 3.0


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 5, 1.0)
    save(tmp_path, 5, 2.0)
    assert (steps(tmp_path), value(tmp_path), os.listdir(tmp_path)) == ([5], 2.0, ["0000000005"])


@pytest.mark.parametrize("crash_after", ["old moved away", "new moved in"])
def test_a_replacement_cut_short_is_finished_or_undone(tmp_path, crash_after):
    """Dying between the two renames of a replacement loses neither the old nor the new."""
    old, replaced = save(tmp_path, 5, 1.0), tmp_path / "0000000005.replaced"
    old.rename(replaced)
    if crash_after == "new moved in":
        save(tmp_path / "elsewhere", 5, 2.0).rename(old)
        (tmp_path / "elsewhere").rmdir()
    expected = 1.0 if crash_after == "old moved away" else 2.0
    assert len(checkpoint.list_bundles(tmp_path)) == 1 and value(tmp_path) == expected
    save(tmp_path, 6)
    assert steps(tmp_path) == [5, 6] and value(tmp_path / "0000000005") == expected
    assert sorted(os.listdir(tmp_path)) == ["0000000005", "0000000006"]


def test_leftovers_of_dead_writers_go_and_those_of_living_writers_stay(tmp_path):
    save(tmp_path, 1)
    (tmp_path / ".tmp-0000000002-dead").mkdir()
    (tmp_path / ".tmp-0000000002-dead" / "weights.safetensors").write_bytes(b"half")
    (tmp_path / ".trash-dead").mkdir()
    with writer._scratch(tmp_path, 3) as living:
        assert steps(tmp_path) == [1]
        save(tmp_path, 4)
        assert sorted(os.listdir(tmp_path)) == sorted([living.name, "0000000001", "0000000004"])
    assert not living.exists()


def test_writers_at_the_same_time_do_not_hurt_each_other(tmp_path):
    def work(number):
        for step in range(10):
            save(tmp_path, step, float(number), keep=4)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps(tmp_path)[-1] == 9 and all(value(bundle) in range(4) for bundle in checkpoint.list_bundles(tmp_path))
    assert all(name.isdigit() for name in os.listdir(tmp_path))


def test_a_reader_beside_a_writer_always_gets_a_whole_bundle(tmp_path):
    """Even with one bundle that is replaced, or one kept that is pruned, again and again."""
    for options in ({"step": lambda n: 0}, {"step": lambda n: n, "keep": 1}):
        root, stop = tmp_path / str(len(options)), threading.Event()
        write = lambda n, root=root, o=options: save(root, o["step"](n), float(n), keep=o.get("keep", 3))
        write(0)

        def work(write=write, stop=stop):
            n = 0
            while not stop.is_set():
                write(n := n + 1)

        writer = threading.Thread(target=work)
        writer.start()
        try:
            seen = [value(root) for _ in range(150)]
        finally:
            stop.set()
            writer.join()
        assert seen == sorted(seen) and seen[-1] > seen[0]


class FullDisk:
    """Fails like a full disk at the n-th call."""

    def __init__(self, real, n):
        self.real, self.n = real, n

    def __call__(self, *args, **kwargs):
        self.n -= 1
        if self.n < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.real(*args, **kwargs)


@pytest.mark.parametrize("n", range(4))
@pytest.mark.parametrize("call", ["fsync", "mkdir", "rename"])
def test_a_full_disk_is_told_and_leaves_the_earlier_bundles(tmp_path, monkeypatch, call, n):
    """The n-th fsync (weights, manifest, folder, parent), the making of the folder or the rename fails."""
    save(tmp_path, 1, 1.0)
    reached = {"fsync": 4, "mkdir": 2, "rename": 1}[call]  # root and scratch are made; one rename
    failing = FullDisk(getattr(os, call), n)
    monkeypatch.setattr(os, call, failing)
    if n >= reached:
        save(tmp_path, 2)
        return
    with pytest.raises(CheckpointError, match=r"0000000002.*No space left on device.*earlier bundles are untouched"):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    assert value(tmp_path / "0000000001") == 1.0
    save(tmp_path, 2, 2.0)
    assert value(tmp_path) == 2.0


def test_an_interrupt_during_a_save_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path, 1)
    assert os.listdir(tmp_path) == []


def test_an_array_changed_while_it_is_saved_still_gives_a_loadable_bundle(tmp_path):
    """An actor may write to the replay buffer meanwhile: which values are saved is open, that they load is not."""
    replay, stop = np.zeros(4 << 20, np.uint8), threading.Event()

    def scribble():
        while not stop.is_set():
            replay[:] += 1

    writer = threading.Thread(target=scribble)
    writer.start()
    try:
        for step in range(5):
            checkpoint.save(tmp_path, params={}, replay=replay, step=step)
            checkpoint.load(tmp_path, side="numpy")
    finally:
        stop.set()
        writer.join()


def test_a_folder_without_bundles_says_so(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "0000000001.replaced.txt").write_text("not a bundle")
    assert checkpoint.list_bundles(tmp_path) == []
    with pytest.raises(CheckpointError, match="at least one complete bundle"):
        checkpoint.load(tmp_path)
    with pytest.raises(CheckpointError, match="No such file"):
        checkpoint.load(tmp_path / "missing")


def test_damage_to_the_newest_is_told_with_the_newest_intact_one(tmp_path):
    """There is no silent step back: the user decides."""
    for step in (1, 2, 3):
        save(tmp_path, step, float(step))
    for step in (2, 3):
        (tmp_path / f"{step:010d}" / "weights.safetensors").write_bytes(b"rubbish")
    with pytest.raises(CheckpointError) as caught:
        checkpoint.load(tmp_path, side="numpy")
    assert "0000000003/weights.safetensors" in str(caught.value)
    assert f"The newest intact bundle beside it is {str(tmp_path / '0000000001')!r}" in str(caught.value)
    (tmp_path / "0000000001" / "manifest.json").unlink()
    with pytest.raises(CheckpointError, match="no intact bundle beside it"):
        checkpoint.load(tmp_path, side="numpy")


def test_files_are_readable_by_the_umask_alone(tmp_path):
    bundle = save(tmp_path, 1)
    umask = os.umask(0)
    os.umask(umask)
    assert bundle.stat().st_mode & 0o777 == 0o777 & ~umask


# What is not ours


STRANGE = {
    "file": lambda path, aside: path.write_text("mine"),
    "folder": lambda path, aside: (path.mkdir(), (path / "notes.txt").write_text("mine")),
    "link to a folder": lambda path, aside: path.symlink_to(aside),
    "dangling link": lambda path, aside: path.symlink_to("nowhere"),
    "link to itself": lambda path, aside: path.symlink_to(path.name),
    "pipe": lambda path, aside: os.mkfifo(path),
}
NAMES = (".tmp-x", ".trash-x", ".tmp-", "0000000001.replaced.txt", "notes")


@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("name", NAMES)
def test_strange_things_beside_the_bundles_neither_stop_a_save_nor_suffer(tmp_path, name, kind):
    root, aside = tmp_path / "root", tmp_path / "aside"
    root.mkdir()
    aside.mkdir()
    (aside / "notes.txt").write_text("mine")
    STRANGE[kind](root / name, aside)
    for step in (1, 2, 3):
        save(root, step, float(step), keep=2)
    assert steps(root) == [2, 3] and value(root) == 3.0
    assert os.path.lexists(root / name) and (aside / "notes.txt").read_text() == "mine"
    if kind == "folder":
        assert (root / name / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("name", [".tmp-0000000002-00ab", ".trash-00ab", "0000000002.replaced"])
@pytest.mark.parametrize("kind", [kind for kind in STRANGE if kind != "folder"])
def test_what_has_a_name_of_ours_but_is_no_folder_is_left_alone(tmp_path, name, kind):
    (aside := tmp_path / "aside").mkdir()
    (root := tmp_path / "root").mkdir()
    STRANGE[kind](root / name, aside)
    save(root, 1)
    assert steps(root) == [1] and os.path.lexists(root / name)


@pytest.mark.parametrize("kind", STRANGE)
def test_something_in_the_place_of_a_bundle_is_named_and_left_alone(tmp_path, kind):
    """A folder with other things in it is no bundle either."""
    root, aside = tmp_path / "root", tmp_path / "aside"
    save(root, 1, 1.0)
    aside.mkdir()
    STRANGE[kind](root / "0000000002", aside)
    before = sorted(os.listdir(root))
    with pytest.raises(
        CheckpointError, match=r"0000000002'?: expected nothing there, or a bundle to replace, got .*move"
    ):
        save(root, 2)
    assert sorted(os.listdir(root)) == before and os.path.lexists(root / "0000000002")
    assert value(root / "0000000001") == 1.0


def test_a_folder_that_is_no_bundle_is_neither_listed_nor_pruned(tmp_path):
    """Folders are often named by the second they were made in."""
    (run := tmp_path / "1763236800").mkdir()
    (run / "config.yaml").write_text("mine")
    for step in range(5):
        save(tmp_path, step, float(step), keep=1)
    assert steps(tmp_path) == [4] and value(tmp_path) == 4.0 and (run / "config.yaml").read_text() == "mine"


def test_a_bundle_that_lost_its_files_is_still_told(tmp_path):
    save(tmp_path, 1)
    last = save(tmp_path, 2)
    for file in last.iterdir():
        file.unlink()
    with pytest.raises(CheckpointError, match="0000000002/manifest.json: expected a regular file"):
        checkpoint.load(tmp_path)
    save(tmp_path, 2, 2.0)
    assert value(tmp_path) == 2.0


def test_leftovers_that_cannot_be_removed_do_not_stop_a_save(tmp_path, monkeypatch):
    (tmp_path / ".tmp-0000000002-00ab").mkdir()
    real = shutil.rmtree

    def refuse(path, *args, **kwargs):
        if str(path).endswith("-00ab"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        real(path, *args, **kwargs)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    save(tmp_path, 1)
    assert steps(tmp_path) == [1]
