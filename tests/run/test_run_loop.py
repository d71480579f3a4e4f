"""The loop over chunks: what is logged depends neither on chunks nor on where a run was stopped, asked or killed."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console
from trainer import train

from crossfade.errors import UsageError
from crossfade.run import Progress, StopOnSignal, progress, run_chunks
from crossfade.run.metrics import read_rows

HERE = Path(__file__).parent
LOSS = np.random.default_rng(0).normal(size=200)


def body(step, n):
    return {"loss": LOSS[step : step + n], "updates": np.arange(step, step + n) + 1}


def timeless(rows):
    return [{k: v for k, v in row.items() if k != "wall" and not k.startswith("time/")} for row in rows]


def run(total=100, chunk=10, stops=(), **options):
    """Rows of a run stopped at the first chunk end after each of `stops` and resumed, and the chunks it ran."""
    rows, chunks, start, window = [], [], 0, {}

    def keep(at, unfinished):
        nonlocal window
        window = unfinished

    for stop_at in (*stops, total):
        begun = start

        def step(at, n):
            chunks.append((at, n))
            return body(at, n)

        start = run_chunks(
            total,
            chunk,
            step,
            start=begun,
            window=window,
            on_log=lambda at, row: rows.append({"step": at, **row}),
            on_checkpoint=keep,
            stop=lambda stop_at=stop_at: chunks[-1][0] + chunks[-1][1] >= stop_at,
            **options,
        )
    assert start == total
    return timeless(rows), chunks


@settings(max_examples=60, deadline=None)
@given(
    chunk=st.integers(1, 120),
    log_every=st.integers(1, 40),
    eval_every=st.sampled_from([0, 7, 20]),
    checkpoint_every=st.sampled_from([0, 15]),
    stops=st.lists(st.integers(1, 99), max_size=3).map(sorted),
)
def test_rows_do_not_depend_on_chunks_or_stops(chunk, log_every, eval_every, checkpoint_every, stops):
    options = {"log_every": log_every, "on_eval": lambda step: {"eval/step": step}, "eval_every": eval_every}
    expected, _ = run(chunk=100, **options)
    rows, chunks = run(chunk=chunk, stops=stops, checkpoint_every=checkpoint_every, **options)
    assert rows == expected
    assert chunks == run(chunk=chunk, checkpoint_every=checkpoint_every, **options)[1]


def test_rows_are_means_over_windows_with_evaluations_merged_in():
    rows, chunks = run(30, 8, log_every=10, on_eval=lambda step: {"eval/x": step}, eval_every=20)
    assert chunks == [(0, 8), (8, 8), (16, 4), (20, 4), (24, 6)]
    assert [sorted(row) for row in rows] == [
        ["loss", "step", "updates"],
        ["eval/x", "loss", "step", "updates"],
        ["eval/x", "loss", "step", "updates"],
    ]
    np.testing.assert_allclose([row["loss"] for row in rows], LOSS[:30].reshape(3, 10).mean(1), rtol=1e-12)
    assert [row["updates"] for row in rows] == [10, 20, 30]


def test_losing_the_unfinished_window_is_noticed():
    """Guard: the window matters, and leaving it out is refused."""
    with pytest.raises(UsageError, match="start=15 lies inside a log window of 10"):
        run_chunks(30, 5, body, start=15, on_log=lambda *_: None, log_every=10)
    rows = []
    run_chunks(20, 5, body, start=15, window={}, on_log=lambda at, row: rows.append(row["loss"]), log_every=10)
    assert rows != [LOSS[10:20].mean()]


def test_checkpoints_come_at_their_interval_and_at_the_end():
    saved = []
    run_chunks(50, 8, body, on_log=lambda *_: None, on_checkpoint=lambda at, _: saved.append(at), checkpoint_every=20)
    assert saved == [20, 40, 50]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"chunk": 0}, "chunk: expected at least 1, got 0"),
        ({"log_every": 0}, "log_every: expected at least 1, got 0"),
        ({"start": 11}, "start: expected a step from 0 to total=10, got 11"),
        (
            {"body": lambda step, n: {"loss": np.zeros((n, 2))}},
            r"metric 'loss': expected one number for each of 5 steps",
        ),
        ({"body": lambda step, n: {"loss": 1.0}}, r"metric 'loss': expected one number for each of 5 steps"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        run_chunks(**{"total": 10, "chunk": 5, "body": body, "on_log": lambda *_: None} | arguments)


def test_the_first_signal_asks_and_the_second_orders(capsys):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), StopOnSignal() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop() and "stopping after this chunk" in capsys.readouterr().err
        os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_signals_are_left_alone_outside_the_main_thread():
    seen = []

    def work():
        with StopOnSignal() as stop:
            seen.append(stop())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_a_progress_bar_is_silent_when_not_on_a_terminal(capsys):
    with Progress(10) as bar:
        bar.update(5, {"train/loss": 1.0})
    assert capsys.readouterr().err == ""


def test_a_progress_bar_shows_steps_and_loss_on_a_terminal(monkeypatch):
    screen = Console(file=io.StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(progress, "stderr_console", lambda: screen)
    with Progress(10, start=3, title="toy") as bar:
        bar.update(5, {"train/loss": 1.25})
    assert all(words in screen.file.getvalue() for words in ("toy", "5/10", "loss 1.25"))


def start_trainer(path, chunk, delay=0.03):
    words = [sys.executable, str(HERE / "trainer.py"), str(path), str(delay), str(chunk)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=HERE)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    train(path)
    return timeless(read_rows(path / "metrics.jsonl"))


def test_resume_after_kill_9_gives_the_same_metrics(tmp_path, uninterrupted):
    path = tmp_path / "run"
    for chunk, rows in ((2, 1), (5, 5), (3, 8)):  # killed once so many rows are there: before and after checkpoints
        process = start_trainer(path, chunk)
        while process.poll() is None and count(path / "metrics.jsonl") < rows:
            time.sleep(0.002)
        process.kill()
        process.communicate()
        assert not (path / "done").exists()
    with open(path / "metrics.jsonl", "ab") as file:
        later = b'{"step": 38, "env_steps": 608, "updates": 0, "wall": 9.0, "loss": 1e9}\n'
        file.write(later + b'{"step": 39, "los')  # later than the checkpoint, and cut short
    train(path)
    assert timeless(read_rows(path / "metrics.jsonl")) == uninterrupted
    assert (path / "done").exists()
    sessions = json.loads((path / "meta.json").read_text())["sessions"]
    begun_at = [session.get("resumed_at", 0) for session in sessions]
    assert len(begun_at) == 4 and begun_at == sorted(begun_at) and begun_at[-1] >= 15


def count(path):
    return len(path.read_bytes().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_resume_after_a_polite_stop_gives_the_same_metrics(number, tmp_path, uninterrupted):
    path = tmp_path / "run"
    process = start_trainer(path, 3)
    assert process.stdout is not None and process.stdout.readline() == "15\n"
    process.send_signal(number)
    out, _ = process.communicate()
    assert process.returncode == 0
    stopped_at = int(out.split()[-1])
    assert 15 < stopped_at < 40 and not (path / "done").exists()
    assert read_rows(path / "metrics.jsonl")[-1]["step"] <= stopped_at
    train(path, chunk=3)
    assert timeless(read_rows(path / "metrics.jsonl")) == uninterrupted


def test_a_phase_ends_a_chunk_and_is_evaluated():
    evaluated = []
    rows, chunks = run(40, 10, breaks=(7, 25), on_eval=lambda at: evaluated.append(at) or {}, log_every=10)
    assert chunks == [(0, 7), (7, 3), (10, 10), (20, 5), (25, 5), (30, 10)]
    assert evaluated == [7, 25, 40]
    whole, _ = run(40, 10, log_every=10)
    logged = {row["step"]: row["loss"] for row in timeless(rows) if "loss" in row}
    assert logged == {row["step"]: row["loss"] for row in timeless(whole)}
