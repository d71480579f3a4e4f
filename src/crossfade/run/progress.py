"""A progress bar on standard error: steps, rate, time left, last loss."""

import functools
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress as RichProgress, TextColumn, TimeRemainingColumn


@functools.cache
def stderr_console() -> Console:
    """The one console of this process, so that log lines and a bar do not write over each other."""
    return Console(stderr=True, highlight=False)


class Progress:
    """`with Progress(total) as bar: bar.update(step, metrics)`. Shows nothing when quiet or not on a terminal."""

    def __init__(self, total: int, *, start: int = 0, title: str = "training", quiet: bool = False):
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[loss]}"),
            console=stderr_console(),
            disable=quiet or not stderr_console().is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(title, total=total, completed=start, rate="", loss="")

    def update(self, step: int, metrics: Mapping[str, Any] | None = None) -> None:
        """Shows `step` of the total, and the loss if there is one among the metrics."""
        losses = [value for key, value in (metrics or {}).items() if key.rpartition("/")[2] == "loss"]
        rate = self._bar.tasks[self._task].speed
        self._bar.update(
            self._task,
            completed=step,
            rate="" if rate is None else f"{rate:,.0f} it/s" if rate >= 10 else f"{rate:.2g} it/s",
            loss=f"loss {float(losses[0]):.4g}" if losses else "",
        )

    def __enter__(self) -> "Progress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
