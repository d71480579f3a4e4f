"""What goes wrong around crossfade is told in words; what goes wrong inside leaves its traceback in a file."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crossfade import failing
from crossfade.cli import main
from crossfade.config import resolve
from crossfade.errors import UsageError, UserCodeError
from crossfade.loading import load_attribute
from crossfade.registry import systems
from crossfade.run import files, memory
from crossfade.systems.trading.config import TradingConfig

TINY = ["train", "gflownet", *systems()["gflownet"].tiny, "mode=torch", "--quiet"]


def said(capsys, code: int, words: list[str]) -> str:
    """What a command line answers on standard error."""
    assert main(words) == code
    error = capsys.readouterr().err
    assert "Traceback" not in error and "unforeseen" not in error
    return error


# The disk


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([*TINY, "--runs-dir", "file"], 1, "'file/gflownet', got: Not a directory. Name a folder"),
        ([*TINY, "--runs-dir", "a" * 300], 1, "File name too long. Choose a shorter name"),
        (["report", "--out", "folder"], 2, "expected at least one run"),
        (["train", "gflownet", "--config", "folder"], 2, "expected a YAML file at 'folder', got: Is a directory"),
        (["train", "gflownet", "--config", "a" * 300], 2, "got: File name too long"),
        (["train", "--resume", "folder"], 2, "expected a run's folder"),
        (["eval", "file"], 2, "expected a run's folder"),
        (["eval", "a\0b"], 2, "expected words without NUL characters, got 'a\\x00b'"),
        (["convert", "a" * 300], 1, "File name too long. Choose a shorter name"),
        (["convert", "gone"], 2, "expected a checkpoint or a run, got 'gone', where nothing is"),
        (["convert", "gone", "--to", "onnx"], 2, "expected a checkpoint or a run, got 'gone', where nothing is"),
        (["train", "robot", "env.substeps=1000000000"], 2, "env.substeps: expected an integer from 1 to 1,000"),
        (["train", "gflownet", "data=file", "data_batch=1", *TINY[2:]], 2, "data: expected `all`, a .npy file"),
    ],
)
def test_paths_that_do_not_fit_are_answered_in_words(folder, words, code, message, capsys):
    assert message in said(capsys, code, words)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["offline", "data=gone.npz"], 2, "got 'gone.npz', where nothing is"),
        (["offline", "data=file"], 1, "Convert it to one of these"),
    ],
)
def test_a_run_that_cannot_begin_leaves_no_folder(folder, words, code, message, capsys):
    assert message in said(capsys, code, ["train", *words, "mode=torch", "--quiet"])
    assert not list(folder.glob("runs/*/*"))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_disk_that_refuses_is_named_with_what_to_do(folder, number, monkeypatch, capsys):
    def refuse(file):
        raise OSError(number, os.strerror(number), str(folder / "runs"))

    monkeypatch.setattr(files.os, "fsync", refuse)
    error = said(capsys, 1, [*TINY, "--runs-dir", "runs"])
    assert f"{str(folder / 'runs')!r}, got: {os.strerror(number)}. {failing.OS_ADVICE[number]}" in error


@pytest.mark.parametrize("name", ["pipe", "folder"])
def test_what_is_no_file_is_not_replaced_by_one(folder, name):
    with pytest.raises(UsageError, match="expected the name of a file to write"):
        files.write_text(folder / name, "x")
    assert not (folder / name).is_file() and len(list(folder.iterdir())) == 3


# Settings in files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\xff\xfe", "no UTF-8 text"),
        (b"[" * 100_000, "more than 30 levels"),
        (b"a: " + b"{a: " * 400 + b"1" + b"}" * 400, "more than 30 levels"),
        (b"env: &a\n  env: *a\n", "an alias (*name); write the value out instead"),
        (b"seed: " + b"9" * 6000, "expected YAML"),
        (b"- 1\n", "expected `key: value` lines, got list"),
        (b"seed: !!python/object/apply:os.system ['true']\n", "could not determine a constructor"),
        (b'data: "a\\0b"\n', "data: expected str | none, got 'a"),
        (b"seed: 1\nseed: 2\n", "the same key twice: seed"),
    ],
)
def test_a_file_of_settings_may_hold_anything(folder, text, message, capsys):
    (folder / "settings.yaml").write_bytes(text)
    assert message in said(capsys, 2, ["train", "gflownet", "--config", "settings.yaml", "--runs-dir", "file"])


def test_a_file_of_settings_may_begin_with_a_byte_order_mark(folder):
    (folder / "settings.yaml").write_bytes(b"\xef\xbb\xbfseed: 3\r\n")
    assert resolve(TradingConfig(), file=folder / "settings.yaml").seed == 3


@pytest.mark.parametrize(
    ("words", "file", "message"),
    [
        (["env=bayesnet", "env.file=data.csv"], "data.csv", "no UTF-8 text"),
        (["env=phylo", "env.file=data.fa"], "data.fa", "no UTF-8 text"),
        (["env=sequence", "env.file=data.csv"], "data.csv", "no UTF-8 text"),
        (["env=sequence", "env.file=data.npz"], "data.npz", "expected an NPZ file"),
        (["env=grid", "data=data.csv", "data_batch=1"], "data.csv", "no UTF-8 text"),
        (["env=grid", "data=data.npy", "data_batch=1"], "data.npy", "expected an array of integers"),
    ],
)
def test_data_that_are_no_text_are_refused(folder, words, file, message, capsys):
    (folder / file).write_bytes(b"\xff\xfe,1\n")
    assert message in said(capsys, 2, ["train", "gflownet", *words, "mode=torch", "steps=1"])


def test_long_values_are_cut_short_in_messages(capsys):
    assert "(5002 characters)" in said(capsys, 2, ["train", "gflownet", f"seed={'x' * 5000}"])


@pytest.mark.parametrize("value", ["1e999999999", "-1e999999999", "9" * 5000, "１２３e99"])
def test_huge_integers_are_refused_at_once(value, capsys):
    assert "seed: expected" in said(capsys, 2, ["train", "gflownet", f"seed={value}"])


# The user's own code


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "raise ValueError('not today')",
            r"importing their_code failed: ValueError: not today \(.*their_code.py, line 1\)",
        ),
        ("def f(:\n", r"SyntaxError: .*their_code.py, line 1"),
        ("import sys; sys.exit(3)", "SystemExit: 3"),
        ("import no_such_module", "it needs 'no_such_module', which is not installed"),
        ("def f(): f()\nf()", "RecursionError"),
        ("thing = 3", "has no attribute 'Params'"),
        ("def Params(): pass", "expected their_code:Params to be a class under @dataclass"),
        (
            "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Params: pass",
            "expected a class that extends",
        ),
    ],
)
def test_errors_in_the_users_module_are_theirs(folder, source, message, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "their_code", raising=False)
    (folder / "their_code.py").write_text(source)
    config = load_attribute(systems()["gflownet"].config)
    with pytest.raises((UserCodeError, UsageError), match=message):
        resolve(config(), words=["env=their_code:Params"])


@pytest.mark.parametrize("target", ["", ":", "a:", ":b", "..a:b", "a b:c", "a:b:c", "a..b:c", "1a:b"])
def test_a_place_that_is_none_is_refused(target):
    with pytest.raises(UsageError, match="expected MODULE:ATTR"):
        load_attribute(target)


def test_a_factory_that_fails_is_named(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "their_factory", raising=False)
    (folder / "their_factory.py").write_text("def make():\n    raise OSError('no weights')")
    with pytest.raises(UserCodeError, match=r"calling their_factory:make failed: OSError: no weights .*line 2"):
        load_attribute("their_factory:make", int)


# Memory


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["gflownet", "env.n_dim=500"], "of trajectories"),
        (["gflownet", "hidden=1000000000"], "of networks"),
        (["gflownet", "batch_size=2000000000"], "of trajectories"),
        (["gflownet", "env=bits", "env.n_bits=80000", "env.n_modes=1000000"], "of tables of the world"),
        (["gflownet", "env.n_dim=1000", "env.max_dim_per_action=1000"], "more than 1,000,000 TB"),
        (["gflownet", "replay_batch=1", "replay_capacity=2000000000", "env.n_dim=30"], "of objects remembered"),
        (["gflownet", "env=cube", "env.n_dim=1000", "hidden=1000000"], "of networks"),
        (["trading", "n_envs=100000000"], "of steps"),
        (["trading", "days=1000000000"], "of days"),
        (["trading", "hidden=1000000"], "of networks"),
    ],
)
def test_what_cannot_fit_is_refused_before_anything_is_allocated(words, what, capsys, monkeypatch):
    monkeypatch.setattr(memory, "total", lambda: 16 * 10**9)
    error = said(capsys, 2, ["train", *words])
    assert "expected a run that fits into 16.0 GB of memory" in error and what in error


def test_a_sweep_needs_the_memory_of_all_its_members(capsys, monkeypatch):
    words = ["sweep", "gflownet", "hidden=2000", "--over", "seed=0..9999"]
    monkeypatch.setattr(memory, "total", lambda: 16 * 10**9)
    assert "in each of 10000" in said(capsys, 2, words)
    assert "at most 10000" in said(capsys, 2, [*words[:-1], "seed=0..99999999"])
    assert "at most 10000 combinations" in said(capsys, 2, [*words[:-1], "seed=0..999", "lr=1,2,3,4,5,6,7,8,9,10,11"])
    assert "the first one first" in said(capsys, 2, [*words[:-1], "seed=5..3"])


def test_every_preset_fits_into_a_small_machine():
    for record in systems().values():
        for words in (*record.presets.values(), record.tiny):
            assert sum(resolve(load_attribute(record.config)(), words=words).footprint().values()) < 10**9


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 720210856248 bytes."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory"),
        ValueError("Maximum allowed dimension exceeded"),
    ],
)
def test_memory_that_gives_out_is_told_in_words(error, monkeypatch, capsys):
    assert "expected to fit into memory" in said_of(error, monkeypatch, capsys)


def said_of(error: Exception, monkeypatch, capsys) -> str:
    """What a verb that raises this error says."""

    def run(self):
        raise error

    monkeypatch.setattr("crossfade.verbs.list.List.run", run)
    assert main(["list"]) == 1
    return capsys.readouterr().err


# The installation


def test_a_missing_extra_is_named_with_the_command_that_brings_it(monkeypatch, capsys):
    missing = ModuleNotFoundError("No module named 'optax'", name="optax")
    assert "pip install 'crossfade[jax]'" in said_of(missing, monkeypatch, capsys)


@pytest.mark.parametrize("unset", [("HOME",), ("HOME", "XDG_CACHE_HOME")])
def test_a_user_without_a_home_can_work(unset, tmp_path):
    code = (
        "import os, pwd; pwd.getpwuid = lambda uid: (_ for _ in ()).throw(KeyError(uid))\n"
        "from crossfade.cli import main; code = main(['list']); print(os.environ['JAX_COMPILATION_CACHE_DIR'])"
        "; raise SystemExit(code)"
    )
    hidden = (*unset, "JAX_COMPILATION_CACHE_DIR")
    env = {name: value for name, value in os.environ.items() if name not in hidden} | {"TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr
    assert done.stdout.splitlines()[-1].startswith(str(tmp_path)) or "XDG_CACHE_HOME" in env


def test_words_are_not_taken_for_markup(capsys):
    assert "unknown sample '[/red]'" in said(capsys, 2, ["data", "sample", "[/red]"])


def test_names_that_are_no_text_are_printed_escaped(tmp_path):
    words = [sys.executable, "-m", "crossfade", "eval", os.fsencode(tmp_path) + b"/\xff"]
    done = subprocess.run(words, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 2 and b"\\udcff" in done.stderr and b"Traceback" not in done.stderr


# What nobody foresaw


def test_an_unforeseen_error_is_a_paragraph_and_its_traceback_a_file(tmp_path, monkeypatch, capsys):
    def run(self):
        raise KeyError("lost")

    monkeypatch.setattr("crossfade.verbs.list.List.run", run)
    assert main(["list", "--runs-dir", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    (kept,) = tmp_path.iterdir()
    assert error.count("\n") == 1 and "Traceback" not in error
    assert f"unforeseen error in `crossfade list --runs-dir {tmp_path}`: KeyError: 'lost'. The traceback is in" in error
    assert str(kept) in error
    text = kept.read_text()
    assert "Traceback (most recent call last)" in text and "'list' '--runs-dir'" in text and "in run" in text


def test_the_traceback_goes_among_temporary_files_if_the_runs_folder_is_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(failing.tempfile, "gettempdir", lambda: str(tmp_path))
    error = said_of_unforeseen(monkeypatch, capsys, ["list", "--runs-dir=/proc/1/task"])
    assert str(next(tmp_path.iterdir())) in error
    monkeypatch.setattr(failing.tempfile, "gettempdir", lambda: str(tmp_path / "none"))
    assert "set TMPDIR" in said_of_unforeseen(monkeypatch, capsys, ["list", "--runs-dir", "/proc/1/task"])


def said_of_unforeseen(monkeypatch, capsys, words: list[str]) -> str:
    def run(self):
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr("crossfade.verbs.list.List.run", run)
    assert main(words) == 1
    return capsys.readouterr().err


def test_ctrl_c_is_130(monkeypatch, capsys):
    def run(self):
        raise KeyboardInterrupt

    monkeypatch.setattr("crossfade.verbs.list.List.run", run)
    assert main(["list"]) == 130
    assert capsys.readouterr().err == "crossfade: stopped\n"
