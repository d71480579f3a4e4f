"""What the runs of every system keep, on disk and at the command line, by the system's record alone."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from contract import ALL, HALF, TOYS, Killed, assert_equal, contents, rows, run_on_disk, saved, settings, tiny

from crossfade import checkpoint
from crossfade.cli import main
from crossfade.errors import NotFiniteError
from crossfade.loading import load_attribute
from crossfade.registry import SYSTEMS, find
from crossfade.run import RunDir
from crossfade.run.settings import MODES, RunConfig
from crossfade.trainers import training
from crossfade.trainers.making import make_trainer
from crossfade.trainers.system import Snapshot

HERE = Path(__file__).parent
COMMAND = [sys.executable, "-m", "crossfade"]
ALONE = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module", params=ALL)
def system(request) -> str:
    """Of the module's scope, so that the tests of one system stand together and share its runs."""
    return request.param


def on_disk(system: str) -> RunConfig:
    """Of the runs that are kept for a module: compiled where that is quick, without a compiler elsewhere."""
    return settings(system, "jax_full" if system in ("gflownet", *TOYS) else "torch", "float32")


@pytest.fixture(scope="module")
def finished(system, tmp_path_factory) -> Path:
    """A run that has reached its end; nobody changes it."""
    return run_on_disk(system, on_disk(system), tmp_path_factory.mktemp("runs")).path


@pytest.fixture(scope="module")
def killed(system, tmp_path_factory) -> Path:
    """The same run, cut down in its second half; to be copied before it is gone on with."""
    made = training.make_trainer

    def doomed(*arguments):
        trainer = made(*arguments)
        run = trainer.run

        def until_half(step: int, n: int):
            if step >= HALF:
                raise Killed
            return run(step, n)

        trainer.run = until_half
        return trainer

    root = tmp_path_factory.mktemp("killed")
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(training, "make_trainer", doomed)
        run_on_disk(system, on_disk(system), root)
    return next(root.glob(f"{find(system).name}/*"))


@pytest.fixture
def copy(killed, tmp_path) -> Path:
    """Of the run that was killed, in a folder of runs of its own."""
    return shutil.copytree(killed, tmp_path / killed.parent.name / killed.name)


def test_the_log_counts_steps_of_environments(system, finished):
    """Updates times what an update makes, in every row; of PPO and of treasurehunt that is known beforehand."""
    config = on_disk(system)
    assert [row["env_steps"] for row in rows(finished)] == [row["updates"] * config.env_steps for row in rows(finished)]
    if {"n_envs", "worlds"} & set(vars(config)):
        assert rows(finished)[-1]["env_steps"] > config.steps


# Resuming


def test_a_killed_run_resumes_bit_for_bit(finished, copy):
    assert not (copy / "done").exists()
    assert main(["train", "--resume", str(copy), "--quiet"]) == 0
    assert rows(copy) == rows(finished)
    assert_equal(saved(copy), saved(finished))


def test_a_killed_run_resumes_in_another_mode(system, finished, copy):
    other = "torch" if on_disk(system).mode == "jax_full" else "torch_pure"
    assert main(["train", "--resume", str(copy), f"mode={other}", "--quiet"]) == 0
    assert [row["step"] for row in rows(copy)] == [row["step"] for row in rows(finished)]
    found, expected = saved(copy), saved(finished)
    assert {n: (a.shape, a.dtype) for n, a in found.items()} == {n: (a.shape, a.dtype) for n, a in expected.items()}
    assert f"mode: {other}\n" in (copy / "config.yaml").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_was_killed_by_the_system_resumes_bit_for_bit(system, mode, tmp_path):
    steps = 400 if mode == "jax_full" else 40
    pace = [f"steps={steps}", f"chunk={HALF}", f"checkpoint_every={HALF}", f"log_every={HALF // 2}", "eval_every=0"]
    replaced = tuple(word.split("=")[0] for word in pace)
    words = [word for word in tiny(system) if word.split("=")[0] not in replaced]
    command = [*COMMAND, "train", system, *words, *pace, f"mode={mode}", "--quiet", "--runs-dir"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": ALONE}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, **quiet)
    process = subprocess.Popen([*command, str(tmp_path / "killed")], **quiet)
    while not (found := list((tmp_path / "killed").glob("*/*/checkpoints/0*"))):
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    broken, whole = found[0].parent.parent, next((tmp_path / "whole").glob("*/*"))
    assert not (broken / "done").exists()
    subprocess.run([*COMMAND, "train", "--resume", str(broken), "--quiet"], check=True, **quiet)
    assert rows(broken) == rows(whole)
    assert_equal(saved(broken), saved(whole))


def test_resuming_a_finished_run_gives_its_result_and_changes_nothing(finished, capsys):
    before = contents(finished.parent.parent)
    assert main(["train", "--resume", str(finished), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    kept = {k: v for k, v in RunDir(finished).result.items() if k != "step"}
    assert told.pop("run") == str(finished)
    assert told == {name: value if np.isfinite(value) else None for name, value in kept.items()}
    assert contents(finished.parent.parent) == before


REFUSED = [
    (["steps=2"], 2, "steps: "),
    (["stepz=9"], 2, "Did you mean 'steps'?"),
    (["mode=jax_ful"], 2, "jax_full"),
    (["dtype=float64"], 1, "expected float64"),
    (["seed=-1"], 2, "seed"),
    (["another_system"], 2, "not of another_system"),
]


@pytest.mark.parametrize(("words", "code", "message"), REFUSED, ids=lambda value: str(value))
def test_a_refused_resume_changes_nothing(words, code, message, copy, capsys):
    before = contents(copy.parent.parent)
    assert main(["train", "--resume", str(copy), *words, "--quiet"]) == code
    assert message in capsys.readouterr().err
    assert contents(copy.parent.parent) == before


def test_a_damaged_checkpoint_is_refused_and_nothing_is_changed(copy, capsys):
    weights = checkpoint.latest(copy / "checkpoints") / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    before = contents(copy.parent.parent)
    assert main(["train", "--resume", str(copy), "--quiet"]) == 1
    assert "weights" in capsys.readouterr().err
    assert contents(copy.parent.parent) == before


# Being told


@pytest.mark.parametrize("mode", ["torch", "jax_full"])
def test_numbers_that_are_not_finite_are_told_and_not_kept(system, mode, tmp_path):
    record, config = find(system), settings(system, mode, "float32")
    start = make_trainer(record, config).snapshot()
    parameters = {name: array.copy() for name, array in start.parameters.items()}
    for state in start.optimizers.values():
        for name in state.trained:
            parameters[name][...] = np.nan
    with RunDir.create(tmp_path, record.name, config.parts, 0, config, place=record.place) as run:
        with pytest.raises(NotFiniteError, match="expected finite numbers, got .*nan.*iteration 0") as told:
            training.train(record, config, run, start=Snapshot(parameters, {}, start.buffer), quiet=True)
    assert "clip_norm" not in str(told.value) or hasattr(config, "clip_norm")
    assert not list(run.checkpoints.iterdir())


def test_parameters_that_are_not_finite_are_not_kept(tmp_path, monkeypatch):
    """The metrics of an update may be finite, and what it leaves not."""
    made = training.make_trainer

    def poisoned(*arguments):
        trainer = made(*arguments)
        snapshot = trainer.snapshot
        broken = lambda state: state._replace(parameters=state.parameters | {"bias": np.float32([0, -np.inf, 0])})
        trainer.snapshot = lambda: broken(snapshot())
        return trainer

    monkeypatch.setattr(training, "make_trainer", poisoned)
    with pytest.raises(NotFiniteError, match="expected finite numbers, got -inf in bias after iteration 3.*checkpoint"):
        run_on_disk("toy:RECORD", settings("toy:RECORD", "torch", "float32"), tmp_path)
    run = next(tmp_path.glob("bandit/*"))
    assert not list((run / "checkpoints").iterdir()) and not (run / "done").exists()


BAD = [
    (["stepz=9"], "Did you mean 'steps'?"),
    (["steps=many"], "steps"),
    (["steps=0"], "steps: expected"),
    (["mode=jax_ful"], "jax_full"),
    (["dtype=float16"], "dtype"),
    (["devices=2", "mode=torch"], "devices"),
    (["--preset", "no_such_preset"], "no_such_preset"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=lambda value: str(value))
def test_bad_words_are_refused_before_there_is_a_folder(system, words, message, tmp_path, capsys):
    assert main(["train", system, *words, "--runs-dir", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# Evaluation, report, climb


def test_an_evaluation_is_printed_and_written_as_json(system, finished, tmp_path, capsys):
    run = shutil.copytree(finished, tmp_path / finished.parent.name / finished.name)
    assert main(["eval", str(run), "--json", *as_in_the_run(system)]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert json.loads((run / "eval" / f"{2 * HALF:010d}.json").read_text(), parse_constant=pytest.fail) == told
    last = rows(run)[-1]
    shared = [name for name in told if name.startswith("eval/") and name in last]
    assert told["step"] == 2 * HALF and shared
    assert {name: told[name] for name in shared} == {name: last[name] for name in shared}


def as_in_the_run(system: str) -> list[str]:
    """Options of `eval` with which it is as large as evaluations of the run: `episodes` as its `eval_episodes`."""
    config, effort = on_disk(system), find(system).effort
    names = [field.name for field in fields(load_attribute(effort))] if effort else []
    sizes = {name: getattr(config, f"eval_{name}", None) for name in names}
    return [word for name, size in sizes.items() if size is not None for word in (f"--{name}", str(size))]


def test_a_report_shows_the_run(finished, tmp_path):
    page = tmp_path / "report.html"
    assert main(["report", str(finished), "--out", str(page), "--quiet"]) == 0
    text = page.read_text()
    assert find_label(finished) in text and "<svg" in text
    assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text


def find_label(run: Path) -> str:
    return f"s{RunDir(run).meta['seed']}"


def test_the_ladder_is_climbed_with_a_report(tmp_path, capsys):
    """By a toy; the other systems climb in the next test and with one framework alone, which are slow."""
    words = [*tiny("toy:RECORD"), "--updates", str(HALF), "--json", "--runs-dir", str(tmp_path)]
    assert main(["climb", "toy:RECORD", *words]) == 0
    check_climb(json.loads(capsys.readouterr().out), list(MODES), tmp_path / "bandit" / "climb.html")


CLIMBS = [pytest.param(s, list(MODES), marks=pytest.mark.slow) for s in ALL]


@pytest.mark.parametrize(("system", "modes"), CLIMBS)
def test_the_ladder_is_climbed_with_every_compiler_on(system, modes, tmp_path):
    """By default the rung that torch.compile is on; the others have no compiler but XLA, which is always on."""
    words = [*tiny(system), "--modes", *modes, "--json", "--runs-dir", str(tmp_path)]
    done = subprocess.run([*COMMAND, "climb", system, *words], env=ALONE, check=True, capture_output=True, text=True)
    check_climb(json.loads(done.stdout), modes, tmp_path / find(system).name / "climb.html")


def check_climb(rungs: list[dict], modes: list[str], page: Path) -> None:
    assert [rung["mode"] for rung in rungs] == modes
    assert {rung["parity"]["verdict"] for rung in rungs[1:]} <= {"EQUAL", "ROUNDING"}
    assert all((Path(rung["run"]) / "done").exists() for rung in rungs)
    text = page.read_text()
    assert all(mode in text for mode in modes) and "<svg" in text


# One framework alone

MISSING = """
import sys
from contextlib import nullcontext
from pathlib import Path

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from crossfade import checkpoint
from crossfade.cli import main

for name, words in {words}.items():
    folder = Path("{folder}", name)
    assert main(["train", *words, "mode={mode}", "dtype={dtype}", "--quiet", "--runs-dir", str(folder)]) == 0, name
    run = next(folder.glob("*/*"))
    assert main(["eval", str(run)]) == 0, name
    with {wide}:  # 64-bit integers are not narrowed silently
        assert all(checkpoint.load(run / "checkpoints", side=side).step == 8 for side in ("numpy", "{side}")), name
    assert checkpoint.convert(run / "checkpoints", "npz", folder / "weights.npz").is_file(), name
    if {rungs}:
        climb = ["climb", *words, "--updates", "4", "--modes", *{rungs}, "--runs-dir", str(folder)]
        assert main(climb) == 0, name
        page = (folder / name / "climb.html").read_text()
        assert ("ROUNDING" in page or "EQUAL" in page) and "DIFFERENT" not in page, name
assert not {blocked} & set(sys.modules)
"""
ALONE_IN = [
    ("torch", "torch", [], SYSTEMS),
    ("jax", "jax_full", [], SYSTEMS[:2]),
    pytest.param("jax", "jax_full", [], SYSTEMS[2:], marks=pytest.mark.slow),
    pytest.param("torch", "torch", ["torch", "torch_pure"], ALL, marks=pytest.mark.slow),
    pytest.param("jax", "jax_full", [], TOYS, marks=pytest.mark.slow),
    pytest.param("torch", "torch_pure", [], ALL, marks=pytest.mark.slow),
    pytest.param("jax", "jax_policy", ["jax_policy", "jax_full"], ALL, marks=pytest.mark.slow),
]
OTHER = {"torch": {"jax", "jaxlib", "equinox", "optax", "flax", "haiku", "orbax"}, "jax": {"torch"}}


@pytest.mark.parametrize(("side", "mode", "rungs", "systems"), ALONE_IN)
def test_one_framework_is_enough_for_its_modes(side, mode, rungs, systems, tmp_path):
    """Several systems in one process: most of its time goes into importing the framework."""
    words = {find(system).name: [system, *tiny(system)] for system in systems}
    wide = "nullcontext()" if side == "torch" else "__import__('jax').enable_x64(True)"
    dtype = "float32" if side == "torch" else "float64"  # whose programs test_contract.py has compiled
    facts = {"side": side, "mode": mode, "rungs": rungs, "words": words, "folder": tmp_path, "wide": wide}
    code = MISSING.format(blocked=OTHER[side], dtype=dtype, **facts)
    no_compiler = {"CXX": "/none"}  # torch_pure as plain torch
    done = subprocess.run([sys.executable, "-c", code], env=ALONE | no_compiler, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
