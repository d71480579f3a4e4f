"""What a trainer is, whatever its mode."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np


class Snapshot(NamedTuple):
    """The state of a run in neutral form: any mode can go on from it."""

    parameters: dict[str, np.ndarray]  # by torch name
    optimizer: Any = None  # a `bridge.optimizers.OptimizerState`; None before the first update
    buffer: dict[str, Any] | None = None  # what the system remembers between updates, if anything: arrays, nested


class Clock:
    """Seconds spent in each part of an iteration."""

    def __init__(self):
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - began


@runtime_checkable
class Trainer(Protocol):
    """Runs iterations of a system in one mode."""

    clock: Clock

    def run(self, step: int, n: int) -> dict[str, np.ndarray]:
        """Iterations `step` to `step + n`; their metrics, each of shape (n,)."""
        ...

    def snapshot(self) -> Snapshot:
        """The state now."""
        ...

    def evaluate(self, effort: Any = None) -> Any:
        """What the system measures of its policy: `metrics`, and `arrays` for pictures; with an effort, all it can."""
        ...


def as_arrays(buffer: Any) -> Any:
    """A system's buffer, a NamedTuple of arrays and of such NamedTuples, or None, in neutral form."""
    if buffer is None:
        return None
    if isinstance(buffer, tuple):
        return {name: as_arrays(part) for name, part in buffer._asdict().items()}  # pyright: ignore
    return np.array(buffer)


def columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """One array per metric from one dict per iteration."""
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}
