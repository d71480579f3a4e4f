"""What a trainer is, whatever its mode."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .system import Effort, Evaluation, Snapshot


class Clock:
    """Seconds spent in each part of an iteration."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began

    def shares(self) -> dict[str, float]:
        """The share of each part."""
        total = sum(self.seconds.values())
        return {f"time/{part}": spent / total for part, spent in self.seconds.items()}


@runtime_checkable
class Trainer(Protocol):
    """Runs updates of a system in one mode."""

    clock: Clock
    notes: dict[str, str]
    """What readers of its figures must know, kept in the run's meta.json; `mode` is what really runs, if that is not
    what the mode's name promises."""

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        """Updates `step` to `step + n`; their metrics, each of shape (n,)."""
        ...

    def snapshot(self) -> Snapshot:
        """The state now."""
        ...

    def evaluate(self, effort: Effort | None = None) -> Evaluation:
        """What the system measures of its policy; with an effort, all it can."""
        ...


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """One array per metric from one dict per update."""
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
