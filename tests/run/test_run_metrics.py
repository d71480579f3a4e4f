"""metrics.jsonl and its listeners: nothing logged is lost, nothing odd is hidden, TensorBoard says the same."""

import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_settings import Settings

from crossfade.errors import CrossfadeError, RunError
from crossfade.run import Log, RunDir, read_metrics
from crossfade.run.metrics import read_rows, truncate


@pytest.fixture
def run(tmp_path):
    with RunDir.create(tmp_path, "toy", ["algo", "env", "torch"], 0, Settings()) as run:
        yield run


def log_rows(run, rows, **options):
    with Log(run, **{"quiet": True, "tensorboard": False} | options) as log:
        for step, metrics in rows:
            log(step, metrics)


def test_every_row_carries_the_counters_and_new_keys_may_appear(run):
    log_rows(run, [(1, {"a": 1.5, "env_steps": 16, "updates": 1}), (2, {"b": np.float32(0.1), "a": 2})])
    columns = read_metrics(run.metrics_path)
    assert columns["step"].tolist() == [1, 2] and columns["step"].dtype == np.int64
    assert columns["env_steps"].tolist() == [16, 16] and columns["updates"].tolist() == [1, 1]
    assert columns["a"].tolist() == [1.5, 2.0]
    assert math.isnan(columns["b"][0]) and columns["b"][1] == float(np.float32(0.1))
    assert columns["wall"][0] <= columns["wall"][1]


def test_nan_and_infinity_survive_as_strict_json(run):
    log_rows(run, [(1, {"a": math.nan, "b": -math.inf, "c": math.inf, "d": 1.0})])
    refuse = lambda name: pytest.fail(f"{name} is not JSON")
    raw = json.loads(run.metrics_path.read_text(), parse_constant=refuse)
    assert raw["a"] is None and raw["nonfinite"] == {"a": "nan", "b": "-inf", "c": "inf"}
    row = read_rows(run.metrics_path)[0]
    assert math.isnan(row["a"]) and (row["b"], row["c"], row["d"]) == (-math.inf, math.inf, 1.0)


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"a": np.zeros(3)}, r"metric 'a': expected one number, got shape \(3,\)"),
        ({"a": "high"}, "metric 'a': expected one number"),
        ({"a": None}, "metric 'a': expected one number"),
        ({"wall": 1.0}, "expected other names for metrics than wall"),
    ],
)
def test_what_is_not_a_number_is_refused(run, metrics, message):
    with pytest.raises(CrossfadeError, match=message):
        log_rows(run, [(1, metrics)])


def test_steps_never_go_down(run):
    with pytest.raises(CrossfadeError, match="expected step 5 or later, got 4"):
        log_rows(run, [(5, {}), (4, {})])


def test_a_line_cut_short_is_left_out_and_a_damaged_one_is_named(run):
    log_rows(run, [(1, {"a": 1}), (2, {"a": 2})])
    whole = run.metrics_path.read_bytes()
    for cut in range(1, len(whole.splitlines()[1]) + 1):
        run.metrics_path.write_bytes(whole[:-cut])
        assert [row["step"] for row in read_rows(run.metrics_path)] == [1]
    truncate(run.metrics_path, 9)
    assert run.metrics_path.read_bytes() == whole.splitlines(keepends=True)[0]
    run.metrics_path.write_bytes(b"{\n" + whole)
    with pytest.raises(CrossfadeError, match="line 1: expected a JSON object"):
        read_rows(run.metrics_path)


def test_the_wall_clock_leaves_pauses_out(run):
    log_rows(run, [(1, {})])
    line = json.loads(run.metrics_path.read_text()) | {"wall": 1000.0}
    run.metrics_path.write_text(json.dumps(line) + "\n")
    log_rows(run, [(2, {})])
    assert 1000.0 <= read_metrics(run.metrics_path)["wall"][1] < 1010.0


def test_tensorboard_says_what_the_metrics_say_after_a_resume_too(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_rows(run, [(step, {"train/loss": step / 2}) for step in range(1, 6)], tensorboard=True)
    run.resume(3)
    log_rows(run, [(step, {"train/loss": step * 2}) for step in range(4, 6)], tensorboard=True)
    events = EventAccumulator(str(run.tensorboard)).Reload()
    columns = read_metrics(run.metrics_path)
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(1, 0.5), (2, 1), (3, 1.5), (4, 8), (5, 10)]
    assert [e.value for e in events.Scalars("train/loss")] == columns["train/loss"].tolist()


def test_the_console_shows_evaluations_and_stays_silent_when_quiet(run, capsys):
    log_rows(run, [(1, {"loss": 1}), (2, {"loss": 2}), (3, {"loss": 3, "eval/tv": 0.25})], quiet=False)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and "loss 1" in lines[0] and "eval/tv 0.25" in lines[1]
    log_rows(run, [(4, {"eval/tv": 1})])
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("module", ["tensorboard", "matplotlib"])
def test_a_missing_extra_is_named(module, tmp_path):
    code = f"""
import sys; sys.modules[{module!r}] = None
from crossfade.errors import UsageError
from crossfade.run import Log, RunDir
from run_settings import Settings
with RunDir.create({str(tmp_path)!r}, "toy", ["x"], 0, Settings()) as run, Log(run) as log: log(1, {{"a": 1.0}})
try: import crossfade.run.plots
except UsageError as error: print(error, file=sys.stderr)
assert not {{"torch", "jax"}} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    assert f"need {module}: pip install 'crossfade[report]'" in done.stderr


def test_a_log_goes_on_after_a_line_that_was_cut_short(run):
    log_rows(run, [(1, {"a": 1})])
    whole = run.metrics_path.read_bytes()
    run.metrics_path.write_bytes(whole + b'{"step": 2, "a"')
    log_rows(run, [(2, {"a": 2})])
    assert [row["step"] for row in read_rows(run.metrics_path)] == [1, 2]


def test_a_full_disk_is_told(run, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with Log(run, quiet=True, tensorboard=False) as log:
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(RunError, match=r"metrics.jsonl: expected to append a row, got .*No space left .*resume"):
            log(1, {"a": 1})
        monkeypatch.undo()


@pytest.mark.parametrize("make", [lambda path: path.write_text("mine"), lambda path: path.symlink_to("..")])
def test_something_in_the_place_of_the_events_is_named_and_left_alone(run, make):
    make(run.tensorboard)
    with pytest.raises(RunError, match="expected to write .*tensorboard"):
        Log(run, quiet=True)
    assert run.tensorboard.is_symlink() or run.tensorboard.read_text() == "mine"
