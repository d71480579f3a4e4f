"""A run's folder: unique, locked, complete, and silent about who made it."""

import errno
import getpass
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from run_settings import Settings

from crossfade.errors import CrossfadeError, RunError, UsageError
from crossfade.run import Log, RunDir, list_runs
from crossfade.run.files import write_text
from crossfade.run.metrics import read_rows
from crossfade.run.provenance import git_commit, without_folders


def create(root, **options):
    return RunDir.create(root, "toy", ["tb", "grid", "torch"], 3, Settings(steps=7), **options)


def test_a_run_has_its_name_and_its_files(tmp_path):
    with create(tmp_path) as run:
        run.annotate({"device": "cpu"})
        assert re.fullmatch(r"tb-grid-torch-s3-\d{8}-\d{6}", run.path.name) and run.path.parent.name == "toy"
        assert run.read_config(Settings) == Settings(steps=7)
        names = {path.name for path in run.path.iterdir()}
        assert names == {"config.yaml", "meta.json", "metrics.jsonl", "checkpoints", "eval", "plots", "lock"}
        session = run.meta["sessions"][0]
        assert session["cores"] > 0 and session["versions"]["numpy"] and session["notes"] == {"device": "cpu"}
        assert run.result is None
        run.finish(7, {"tv": 0.1, "gap": math.inf})
        assert run.result == {"step": 7, "tv": 0.1, "gap": math.inf}


def test_runs_begun_in_the_same_second_have_folders_of_their_own(tmp_path):
    paths = []
    for _ in range(5):
        with create(tmp_path) as run:
            paths.append(run.path)
    assert len(set(paths)) == 5
    assert sorted(list_runs(tmp_path)) == sorted(paths) == sorted(list_runs(tmp_path, "toy"))
    assert list_runs(tmp_path, "other") == []


def test_two_writers_are_refused_and_readers_are_not(tmp_path):
    with create(tmp_path) as run:
        with pytest.raises(UsageError, match=r"is being written by process \d+; wait for it or stop it"):
            RunDir.open(run.path, write=True)
        reader = RunDir.open(run.path)
        with pytest.raises(UsageError, match="opened to read"):
            reader.finish(0)
    RunDir.open(run.path, write=True).close()


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path):
    code = (
        "import sys, time; from crossfade.run import RunDir; from run_settings import Settings\n"
        "run = RunDir.create(sys.argv[1], 'toy', ['a'], 0, Settings()); print(run.path, flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent)
    assert process.stdout is not None
    path = process.stdout.readline().strip()
    with pytest.raises(UsageError, match=f"process {process.pid}"):
        RunDir.open(path, write=True)
    process.kill()
    process.communicate()
    RunDir.open(path, write=True).close()


def test_resume_drops_later_rows_and_the_done_mark(tmp_path):
    with create(tmp_path) as run:
        with Log(run, quiet=True, tensorboard=False) as log:
            for step in (10, 20, 30):
                log(step, {"a": step})
        run.finish(30)
        run.resume(20, config=Settings(mode="jax_full"))
        assert [row["step"] for row in read_rows(run.metrics_path)] == [10, 20] and run.result is None
        assert run.meta["sessions"][1]["resumed_at"] == 20
        assert run.read_config(Settings).mode == "jax_full"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_resuming_changes_the_folder_only_after_all_checks(tmp_path):
    """The order a caller keeps: every refusal comes before the first change."""
    with create(tmp_path) as run:
        with Log(run, quiet=True, tensorboard=False) as log:
            for step in (10, 20, 30):
                log(step, {"a": step})
        run.finish(30, {"tv": 0.5})
        (run.checkpoints / "0000000030").mkdir()
        before = contents(run.path)

        assert run.completed(30) == run.completed(7) == {"step": 30, "tv": 0.5}
        assert run.completed(31) is None
        run.check_resume(30)
        with pytest.raises(UsageError, match="checkpoint of step 30"):
            run.resume(20, config=Settings(steps=50))
        with pytest.raises(UsageError, match="opened to read"):
            RunDir(run.path).resume(30, config=Settings(steps=50))
        with pytest.raises(TypeError):
            run.resume(30, config=object())  # a config that cannot be written
        assert contents(run.path) == before

        run.resume(30, config=Settings(steps=50))
        assert run.result is None and run.read_config(Settings).steps == 50
        assert [row["step"] for row in read_rows(run.metrics_path)] == [10, 20, 30]
        assert (run.path / "done-0000000030").read_bytes() == before[Path("done")]


@pytest.mark.parametrize("name", ["meta.json", "metrics.jsonl", "done"])
def test_a_damaged_run_is_not_resumed_and_not_changed(tmp_path, name):
    with create(tmp_path) as run:
        run.finish(7)
        (run.path / name).write_text("{}\n")
        before = contents(run.path)
        with pytest.raises(CrossfadeError, match=name):
            run.resume(0, config=Settings(steps=50))
        assert contents(run.path) == before


@pytest.mark.parametrize("change", range(1, 4))
def test_a_run_killed_while_it_is_resumed_can_be_resumed_again(tmp_path, monkeypatch, change):
    """The n-th change to the folder is the last one that is made."""
    with create(tmp_path) as run:
        with Log(run, quiet=True, tensorboard=False) as log:
            for step in (10, 20, 30):
                log(step, {"a": step})
        run.finish(30, {"tv": 0.5})
        left = [change]

        def dying(real):
            def call(*args, **kwargs):
                left[0] -= 1
                if left[0] < 0:
                    raise KeyboardInterrupt
                return real(*args, **kwargs)

            return call

        for owner, call in ((Path, "rename"), (Path, "replace"), (os, "truncate")):
            monkeypatch.setattr(owner, call, dying(getattr(owner, call)))
        with pytest.raises(KeyboardInterrupt):
            run.resume(20, config=Settings(steps=50))
        monkeypatch.undo()
        run.resume(20, config=Settings(steps=50))
        assert [row["step"] for row in read_rows(run.metrics_path)] == [10, 20] and run.result is None
        assert run.read_config(Settings).steps == 50 and (run.path / "done-0000000030").exists()


def test_a_run_that_could_not_be_made_leaves_nothing(tmp_path, monkeypatch):
    real = os.fsync

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunError, match="expected to write .*config.yaml', got: No space left on device. Free some"):
        create(tmp_path)
    monkeypatch.setattr(os, "fsync", real)
    assert list((tmp_path / "toy").iterdir()) == []


@pytest.mark.parametrize("place", ["a file", "loop", "n" * 300])
def test_a_run_cannot_be_made_where_nothing_can_be(tmp_path, place):
    (tmp_path / "a file").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RunError, match="expected to write .*, got: "):
        create(tmp_path / place)
    with pytest.raises(UsageError, match=r"expected a run's folder|expected a folder"):
        RunDir.open(tmp_path / place)


def test_resume_behind_the_latest_checkpoint_is_refused(tmp_path):
    with create(tmp_path) as run:
        (run.checkpoints / "0000000030").mkdir()
        with pytest.raises(UsageError, match="there is a checkpoint of step 30"):
            run.resume(20)
        run.resume(30)


@pytest.mark.parametrize("part", ["../x", "a/b", "", ".hidden", "a b"])
def test_names_that_would_leave_the_folder_are_refused(part, tmp_path):
    with pytest.raises(UsageError, match="expected a name of letters"):
        RunDir.create(tmp_path, "toy", [part], 0, Settings())


def test_opening_what_is_no_run_suggests_the_nearest(tmp_path):
    with create(tmp_path) as run:
        with pytest.raises(UsageError, match=f"Did you mean '{run.path.name}'"):
            RunDir.open(run.path.with_name(run.path.name[:-1]))


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        ("/home/someone/bin/crossfade", "crossfade"),
        ("--config=/home/someone/a.yaml", "--config=a.yaml"),
        ("~/runs/x", "x"),
        ("data=a,/srv/someone/b.npz", "data=a,b.npz"),
        ("env.box=1/2", "env.box=1/2"),
        ("runs/toy/x", "runs/toy/x"),
        ("../x/y", "../x/y"),
        ("lr=1e-3", "lr=1e-3"),
    ],
)
def test_folders_of_the_machine_are_left_out_of_the_command_line(word, kept):
    assert without_folders(word) == kept


def test_meta_names_neither_user_nor_home(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(Path.home() / "bin" / "crossfade"), f"--runs-dir={tmp_path}"])
    with create(tmp_path) as run:
        words = json.dumps(run.meta["sessions"][0]["argv"])
        assert str(Path.home()) + "/" not in run.meta_path.read_text()
        assert getpass.getuser() + "/" not in words and "crossfade" in words


def test_the_commit_is_known_inside_a_repository_only(tmp_path):
    assert git_commit(tmp_path) is None
    git = ["git", "-c", "user.name=n", "-c", "user.email=e@x", "-C", str(tmp_path)]
    subprocess.run([*git, "init", "-q"], check=True)
    (tmp_path / "a").write_text("1")
    subprocess.run([*git, "add", "a"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "a"], check=True)
    clean = git_commit(tmp_path)
    assert clean is not None and re.fullmatch(r"[0-9a-f]{40}", clean)
    (tmp_path / "a").write_text("2")
    assert git_commit(tmp_path) == f"{clean}-dirty"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = write_text(tmp_path / "a.txt", "old")
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError("no space")))
    with pytest.raises(RunError, match=r"expected to write .*a.txt', got: no space. Choose another folder"):
        write_text(path, "new")
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_run_imports_no_framework():
    code = "import sys, crossfade.run.log, crossfade.run.loop, crossfade.run.report, crossfade.config\n"
    code += "assert not {'torch', 'jax', 'matplotlib', 'tensorboard'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
