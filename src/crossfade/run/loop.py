"""The host's loop over chunks of steps, the same for every trainer and mode.

Between chunks the run logs, evaluates, saves and looks whether it should stop. Nothing that is logged depends on how
the steps were cut into chunks or on where the run was stopped and resumed: chunks end at multiples of the chunk size
and of the other intervals, counted from step 0, and at the ends of phases; means over a log window are summed step by
step.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..errors import UsageError
from .log import CARRIED

Window = dict[str, np.ndarray]
"""An unfinished log window: for each metric, sum and count so far. Saved with a checkpoint, given back on resume."""


def run_chunks(
    total: int,
    chunk: int,
    body: Callable[[int, int], Mapping[str, Any]],
    *,
    start: int = 0,
    breaks: Sequence[int] = (),
    window: Mapping[str, Any] | None = None,
    on_log: Callable[[int, dict[str, Any]], object],
    log_every: int = 100,
    on_eval: Callable[[int], Mapping[str, Any]] | None = None,
    eval_every: int = 0,
    on_checkpoint: Callable[[int, Window], object] | None = None,
    checkpoint_every: int = 0,
    on_progress: Callable[[int, dict[str, Any]], object] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Runs steps `start` to `total`; returns the step reached, less than `total` when stopped.

    - `body(step, n)` does n steps and returns metrics, each of shape (n,).
    - `on_log(step, row)`: every `log_every` steps the mean of each metric (of `env_steps` and `updates` the last value)
      and `time/sps`, the steps per second of the last chunk; what `on_eval` returned is in the same row.
    - `on_eval(step)`: every `eval_every` steps, at the `breaks` and at the end; 0 means only at these.
    - `on_checkpoint(step, window)`: every `checkpoint_every` steps, at the end, when stopped. Save `window` with it.
    - `on_progress(step, metrics)`: after each chunk, with each metric's last value.

    At `total` an unfinished window is logged too. A run prolonged from there has that one row more.
    """
    for name, value, least in (
        ("total", total, 0),
        ("chunk", chunk, 1),
        ("log_every", log_every, 1),
        ("eval_every", eval_every, 0),
        ("checkpoint_every", checkpoint_every, 0),
    ):
        if value < least:
            raise UsageError(f"{name}: expected at least {least}, got {value}.")
    if not 0 <= start <= total:
        raise UsageError(f"start: expected a step from 0 to total={total}, got {start}.")
    if start % log_every and window is None:
        raise UsageError(f"start={start} lies inside a log window of {log_every}: give the window= of its checkpoint.")

    step, pending = start, {key: np.array(value, np.float64) for key, value in (window or {}).items()}
    while step < total:
        ends = (step - step % every + every for every in (chunk, eval_every, checkpoint_every) if every)
        end = min(total, *ends, *(mark for mark in breaks if mark > step))
        began = time.perf_counter()
        columns = _columns(body(step, end - step), end - step)
        rate = (end - step) / max(time.perf_counter() - began, 1e-9)

        rows: dict[int, dict[str, Any]] = {}
        marks = range(step - step % log_every + log_every, end + 1, log_every)
        for begin, mark in pairwise(sorted({step, *marks, end})):
            _add(pending, {key: values[begin - step : mark - step] for key, values in columns.items()})
            if mark % log_every == 0 or mark == total:
                rows[mark] = _means(pending) | {"time/sps": rate}
            if mark % log_every == 0:
                pending = {}
        if on_eval and (end == total or end in breaks or (eval_every and end % eval_every == 0)):
            rows[end] = rows.get(end, {}) | dict(on_eval(end))
        for mark, row in rows.items():
            on_log(mark, row)
        step = end

        if on_progress:
            on_progress(end, {key: values[-1] for key, values in columns.items()})
        stopping = stop()
        if on_checkpoint and (stopping or end == total or (checkpoint_every and end % checkpoint_every == 0)):
            on_checkpoint(end, pending)
        if stopping:
            break
    return step


def _columns(metrics: Mapping[str, Any], n: int) -> dict[str, np.ndarray]:
    """The chunk's metrics on the host; waiting for them is waiting for the chunk."""
    columns = {key: np.asarray(value) for key, value in metrics.items()}
    for key, values in columns.items():
        if values.shape != (n,):
            raise UsageError(f"metric {key!r}: expected one number for each of {n} steps, got shape {values.shape}.")
    return columns


def _add(pending: Window, columns: dict[str, np.ndarray]) -> None:
    """Adds steps to the window one after the other, so that sums do not depend on how steps were cut into chunks."""
    for key, values in columns.items():
        if key in CARRIED:
            pending[key] = np.array([values[-1], 1.0])
        else:
            total, count = pending.get(key, (0.0, 0.0))
            pending[key] = np.array([np.cumsum(np.concatenate([[total], values]))[-1], count + len(values)])


def _means(pending: Window) -> dict[str, Any]:
    return {key: int(total) if key in CARRIED else total / count for key, (total, count) in pending.items()}
