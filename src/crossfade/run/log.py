"""One call, `log(step, metrics)`, and everybody who listens: metrics.jsonl, TensorBoard, the console."""

import os
import time
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from ..errors import CrossfadeError, RunError, UsageError
from .files import writing
from .metrics import LAST, NONFINITE, Row, encode, read_rows, scalar, truncate
from .progress import stderr_console
from .rundir import RunDir

CARRIED = ("env_steps", "updates")


@runtime_checkable
class Sink(Protocol):
    """Somebody who wants every row."""

    def write(self, row: Row) -> None: ...

    def close(self) -> None: ...


class Log:
    """The log of a run, new or resumed: it goes on from the last row in metrics.jsonl.

    Every row holds `step`, `env_steps`, `updates` and `wall`, the seconds the run has been running, pauses left out.
    A row without `env_steps` or `updates` (an evaluation, say) repeats the last ones. Measured times go under `time/`:
    a resumed run's rows differ from an uninterrupted one's in those and in `wall` alone.
    """

    def __init__(self, run: RunDir, *, since: float | None = None, quiet: bool = False, tensorboard: bool = True):
        """`since` is the `time.perf_counter()` at which the run began to run, by default now."""
        rows = read_rows(run.metrics_path)
        self._last: Row = rows[-1] if rows else {"step": 0, "env_steps": 0, "updates": 0, "wall": 0.0}
        self._origin = (time.perf_counter() if since is None else since) - self._last["wall"]
        self._sinks: list[Sink] = [_Jsonl(run)]
        if not quiet:
            self._sinks.append(_Console())
        if tensorboard:
            self._sinks += _tensorboard(run, time.time() - self._last["wall"], quiet)

    def __call__(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Logs numbers under `step`, which never goes down."""
        if step < self._last["step"]:
            raise CrossfadeError(
                f"expected step {self._last['step']} or later, got {step}; to go back, use RunDir.resume and a new Log."
            )
        given = {key: scalar(key, value) for key, value in metrics.items()}
        reserved = {"step", "wall", NONFINITE} & given.keys()
        if reserved:
            raise CrossfadeError(
                f"expected other names for metrics than {', '.join(sorted(reserved))}: the log uses it."
            )
        carried = {key: given.pop(key, self._last[key]) for key in CARRIED}
        self._last = {"step": step, **carried, "wall": round(time.perf_counter() - self._origin, 6), **given}
        for sink in self._sinks:
            sink.write(self._last)

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Jsonl:
    """Each row is one write to the kernel: a killed run keeps every row it logged."""

    def __init__(self, run: RunDir):
        self._path = run.metrics_path
        truncate(self._path, LAST)  # a line that was cut short must not be written on
        with writing(self._path):
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def write(self, row: Row) -> None:
        line = encode(row)
        try:
            written = os.write(self._file, line)
        except OSError as error:
            raise RunError(
                f"{self._path}: expected to append a row, got an error: {error.strerror}. Mend that, then resume."
            ) from error
        if written != len(line):
            raise RunError(f"{self._path}: expected to append a row, but the disk is full; free space, then resume.")

    def close(self) -> None:
        os.close(self._file)


class _Console:
    """A line now and then: the first row, evaluations, and otherwise one every few seconds."""

    def __init__(self, seconds: float = 5.0):
        self._seconds, self._next = seconds, 0.0

    def write(self, row: Row) -> None:
        if time.perf_counter() < self._next and not any(key.startswith("eval/") for key in row):
            return
        self._next = time.perf_counter() + self._seconds
        shown = {key: value for key, value in row.items() if key not in ("step", "wall", *CARRIED)}
        figures = "  ".join(f"{key} {value:.4g}" for key, value in shown.items())
        stderr_console().print(f"step {row['step']:>8}  {row['wall']:7.1f} s  {figures}", markup=False, soft_wrap=True)

    def close(self) -> None:
        pass


def _tensorboard(run: RunDir, began: float, quiet: bool) -> list[Sink]:
    try:
        from .tensorboard import TensorBoard
    except UsageError as missing:
        if not quiet:
            stderr_console().print(f"note: {missing} This run goes on without.", markup=False)
        return []
    return [TensorBoard(run.tensorboard, run.metrics_path, began)]
