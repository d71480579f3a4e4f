"""Damaged run folders: every reader says which file, what was expected and what came; nothing is changed."""

import json
import os
import random
import shutil

import pytest
from run_settings import Settings

from crossfade.config import read_tree
from crossfade.errors import CrossfadeError, RunError, UsageError
from crossfade.run import Log, RunDir, list_runs, read_metrics, report_runs
from crossfade.run.provenance import digests
from default_run import few


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    with RunDir.create(root, "toy", ["tb", "grid", "torch"], 3, Settings(steps=7)) as run:
        with Log(run, quiet=True, tensorboard=False) as log:
            for step in (10, 20, 30):
                log(step, {"loss": 1 / step, "time/sps": 10.0, **({"eval/tv": float("nan")} if step == 20 else {})})
        run.finish(30, {"tv": 0.5})
        return run.path


def copied(whole, root):
    return shutil.copytree(whole, root / "toy" / whole.name)


def writing(run):
    """Opens the run as `train --resume` does, up to its first change."""
    with RunDir.open(run, write=True) as opened:
        opened.read_config(Settings)
        opened.completed(50)
        opened.check_resume(30)


READERS = {
    "meta": lambda run, root: RunDir.open(run).meta,
    "result": lambda run, root: RunDir.open(run).result,
    "config": lambda run, root: RunDir.open(run).read_config(Settings),
    "metrics": lambda run, root: read_metrics(run / "metrics.jsonl"),
    "list": lambda run, root: list_runs(root),
    "report": lambda run, root: report_runs([run], root / "report.html"),
    "resume": lambda run, root: writing(run),
    "log": lambda run, root: Log(RunDir.open(run), quiet=True, tensorboard=False).close(),
}


def refusals(run, root):
    """What each reader raises; anything but an error of ours fails the test."""
    found = {}
    for name, read in READERS.items():
        try:
            read(run, root)
        except CrossfadeError as error:
            assert "expected" in str(error) or "unknown key" in str(error), error
            found[name] = str(error)
    return found


def test_a_whole_run_is_read_by_all(whole, tmp_path):
    """The guard of this file."""
    assert refusals(copied(whole, tmp_path), tmp_path) == {}


# What lies in the place of a file

IN_PLACE = {
    "nothing": lambda file: None,
    "an empty file": lambda file: file.touch(),
    "a folder": lambda file: file.mkdir(),
    "a link to itself": lambda file: file.symlink_to(file.name),
    "a dangling link": lambda file: file.symlink_to("nowhere"),
    "a pipe": lambda file: os.mkfifo(file),
    "noise": lambda file: file.write_bytes(random.Random(0).randbytes(200)),
    "UTF-16": lambda file: file.write_bytes("step: 1\n".encode("utf-16")),
    "zeros": lambda file: file.write_bytes(bytes(100)),
    "deep brackets": lambda file: file.write_bytes(b"[" * 100_000 + b"\n"),
    "deep braces": lambda file: file.write_bytes(b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"\n"),
    "a list": lambda file: file.write_text("[1, 2]\n"),
    "a number": lambda file: file.write_text("3\n"),
    "text": lambda file: file.write_text('"words"\n'),
}
HARMLESS = {
    ("metrics.jsonl", "an empty file"),
    ("config.yaml", "an empty file"),
    ("done", "nothing"),
    ("lock", "noise"),
}


@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize("name", ["config.yaml", "meta.json", "metrics.jsonl", "done", "lock"])
def test_something_else_in_the_place_of_a_file_is_named(whole, tmp_path, name, kind):
    run = copied(whole, tmp_path)
    (run / name).unlink()
    IN_PLACE[kind](run / name)
    found = refusals(run, tmp_path)
    if name == "lock":  # its content does not matter
        assert bool(found) == (kind in ("a folder", "a link to itself", "a pipe")), found
    elif (name, kind) in HARMLESS:
        assert found == {}
    else:
        assert found and all(name in message for message in found.values())
    assert os.path.lexists(run / name) or kind == "nothing" or name == "lock"


def test_a_tail_that_is_no_row_is_not_taken_for_one_cut_short(whole, tmp_path):
    """A machine that lost its power may leave zeros."""
    run = copied(whole, tmp_path)
    with open(run / "metrics.jsonl", "ab") as file:
        file.write(bytes(50))
    with pytest.raises(RunError, match="line 4: expected a JSON object.*remove the line"):
        read_metrics(run / "metrics.jsonl")


# What stands in a file


def with_facts(**changes):
    return lambda facts: facts | changes


def with_session(**changes):
    return lambda facts: facts | {"sessions": [facts["sessions"][0] | changes]}


FACTS = {
    "no system": lambda facts: {"seed": 3, "sessions": facts["sessions"]},
    "system is a number": with_facts(system=3),
    "seed is text": with_facts(seed="3"),
    "seed is true": with_facts(seed=True),
    "sessions is a number": with_facts(sessions=3),
    "no session": with_facts(sessions=[]),
    "a session is a number": with_facts(sessions=[3]),
    "a session without a time": with_session(started=None),
    "a session with odd versions": with_session(versions=[1]),
    "a session with odd words": with_session(argv="crossfade"),
    "a session with odd numbers": with_session(argv=[3]),
    "a session with an odd commit": with_session(git=3),
    "a session with odd cores": with_session(cores="2"),
    "a session with an odd platform": with_session(platform=None),
}


@pytest.mark.parametrize("case", FACTS)
def test_odd_circumstances_are_named(whole, tmp_path, case):
    run = copied(whole, tmp_path)
    facts = json.loads((run / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps(FACTS[case](facts)))
    with pytest.raises(RunError, match=r"meta.json: expected the circumstances of a run, got .* Restore it"):
        _ = RunDir.open(run).meta
    assert set(refusals(run, tmp_path)) == {"meta", "list", "report", "resume"}


ROW = {"step": 40, "env_steps": 0, "updates": 0, "wall": 1.0, "loss": 1.0}
ROWS = {
    "no JSON": "{",
    "a list": "[]",
    "NaN": '{"step": 40, "env_steps": 0, "updates": 0, "wall": 1.0, "loss": NaN}',
    "null": json.dumps(ROW | {"loss": None}),
    "text": json.dumps(ROW | {"loss": "1"}),
    "true": json.dumps(ROW | {"loss": True}),
    "a list in a row": json.dumps(ROW | {"loss": [1.0]}),
    "an object in a row": json.dumps(ROW | {"loss": {}}),
    "infinity by its size": '{"step": 40, "env_steps": 0, "updates": 0, "wall": 1.0, "loss": 1e999}',
    "an integer beyond all": json.dumps(ROW | {"loss": 10**400}),
    "no step": json.dumps({"loss": 1.0}),
    "no wall": json.dumps({"step": 40, "env_steps": 0, "updates": 0}),
    "step is text": json.dumps(ROW | {"step": "40"}),
    "step is null": json.dumps(ROW | {"step": None}),
    "step is true": json.dumps(ROW | {"step": True}),
    "step below 0": json.dumps(ROW | {"step": -1}),
    "step of a float": json.dumps(ROW | {"step": 40.5}),
    "step beyond 64 bits": json.dumps(ROW | {"step": 2**63}),
    "step goes down": json.dumps(ROW | {"step": 29}),
    "step is infinite": json.dumps(ROW | {"step": None, "nonfinite": {"step": "inf"}}),
    "nonfinite is a list": json.dumps(ROW | {"nonfinite": ["loss"]}),
    "nonfinite is odd": json.dumps(ROW | {"loss": None, "nonfinite": {"loss": "huge"}}),
    "nonfinite that is finite": json.dumps(ROW | {"nonfinite": {"loss": "nan"}}),
    "nonfinite of nothing": json.dumps(ROW | {"nonfinite": {"gain": "nan"}}),
    "nonfinite is nested": json.dumps(ROW | {"loss": None, "nonfinite": {"loss": [1]}}),
    "deep": "[" * 2000,
}


@pytest.mark.parametrize("case", ROWS)
def test_odd_rows_are_named_by_their_line(whole, tmp_path, case):
    run = copied(whole, tmp_path)
    with open(run / "metrics.jsonl", "a") as file:
        file.write(ROWS[case] + "\n")
    found = refusals(run, tmp_path)
    assert set(found) == {"metrics", "report", "resume", "log"}
    assert all("metrics.jsonl, line 4: expected a JSON object" in message for message in found.values())


@pytest.mark.parametrize("case", [case for case in ROWS if case not in ("step goes down", "no wall")])
def test_an_odd_result_is_named(whole, tmp_path, case):
    run = copied(whole, tmp_path)
    (run / "done").write_text(ROWS[case])
    found = refusals(run, tmp_path)
    assert set(found) == {"result", "report", "resume"}
    assert all("done: expected the result of a run" in message for message in found.values())


SETTINGS = {
    "a list": "- 1\n",
    "text": "words\n",
    "unknown key": "stepps: 3\n",
    "wrong type": "steps: [1, 2]\n",
    "deep": "steps: " + "[" * 5000 + "]" * 5000 + "\n",
    "deep in lines": "".join(" " * i + "a:\n" for i in range(2000)),
    "a date that is none": "steps: 2020-99-99\n",
    "a wrong tag": "steps: !!bool maybe\n",
    "a wrong timestamp": "steps: !!timestamp maybe\n",
    "a wrong number": "steps: !!int ''\n",
    "an unknown tag": "steps: !!python/object:os.system 3\n",
    "a number of thousands of digits": "steps: " + "9" * 5000 + "\n",
    "itself": "steps: &a [*a]\n",
    "more than fits into memory": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]\n" for p, n in zip("abcdefgh", "bcdefghi", strict=True)),
    "a key that is a list": "? [1, 2]\n: 3\n",
    "a key that is null": "null: 3\n",
    "two documents": "steps: 3\n---\nsteps: 4\n",
    "tabs": "steps:\t3\n\tmode: torch\n",
}


@pytest.mark.parametrize("case", SETTINGS)
def test_odd_settings_are_named(whole, tmp_path, case):
    run = copied(whole, tmp_path)
    (run / "config.yaml").write_text(SETTINGS[case])
    with pytest.raises(UsageError, match="config.yaml"):
        RunDir.open(run).read_config(Settings)
    assert set(refusals(run, tmp_path)) <= {"config", "report", "resume"}


def test_settings_are_read_as_they_stand():
    assert read_tree("a: {b: 1}\nc: [2]\n", "x") == {"a": {"b": 1}, "c": [2]} and read_tree("", "x") == {}


def test_a_source_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(RunError, match="gone.npz: expected a file the run depends on, got .*No such file"):
        digests([tmp_path / "gone.npz"])


@pytest.mark.parametrize("seed", few(range(3), 0))
def test_files_cut_and_scribbled_on_by_lot_give_errors_of_ours(whole, tmp_path, seed):
    rng = random.Random(seed)
    for i in range(15):
        root = tmp_path / str(i)
        run = copied(whole, root)
        for name in rng.sample(["config.yaml", "meta.json", "metrics.jsonl", "done"], rng.choice([1, 2])):
            data = bytearray((run / name).read_bytes())
            for _ in range(rng.choice([1, 3, 30])):
                at = rng.randrange(len(data) or 1)
                match rng.choice(["byte", "cut", "insert", "swap"]):
                    case "byte" if data:
                        data[at] = rng.randrange(256)
                    case "cut":
                        del data[at : at + rng.randrange(1, 20)]
                    case "insert":
                        data[at:at] = rng.choice([b"\n", b"null", b"[", b'"', b"{}", b": ", b"-1", b"1e999", b"\xff"])
                    case "swap":
                        data = data[at:] + data[:at]
            (run / name).write_bytes(bytes(data))
        refusals(run, root)
