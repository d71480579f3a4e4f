"""The ladder: every mode in turn on the same seed. Is it still the same system, how fast is it, what does it learn?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DifferentError
from ..registry import System
from ..run import RunDir
from ..run.settings import MODES, Arrays, Mode, RunConfig
from ..verdict import Comparison, Verdict, allow_float64, compare
from .making import make_trainer, precision
from .system import Snapshot
from .training import train_to_end

TOLERANCE = 1e-9  # float64, relative to each leaf's scale, after some updates
NUDGE = 1e-3


@dataclass(frozen=True)
class Rung:
    """What one mode turned out to be."""

    mode: Mode
    parity: Comparison | None  # with the mode below
    run: Path
    result: dict[str, float]
    notes: dict[str, str] = field(default_factory=dict)  # what readers of its speed must know

    def json(self) -> dict[str, Any]:
        """Plain JSON values."""
        parity = None
        if self.parity is not None:
            parity = {"verdict": str(self.parity.verdict), "difference": self.parity.worst.size}
        return {"mode": self.mode, "run": str(self.run), "parity": parity, "notes": self.notes, **self.result}


def climb(
    system: System,
    config: RunConfig,
    runs_dir: Path,
    *,
    modes: Sequence[Mode] = MODES,
    updates: int = 20,
    quiet: bool = False,
    on_rung: Callable[[Rung], object] = lambda rung: None,
) -> list[Rung]:
    """Proves each mode against the one below over `updates` float64 updates, then trains it for `config.steps`.

    Ctrl-C ends the climb: the rungs climbed so far keep their runs.
    """
    rungs: list[Rung] = []
    below: Arrays | None = None
    for mode in modes:
        proved_at = replace(config, mode=mode, dtype="float64")
        leaves = _updates(system, proved_at, updates)
        parity = None
        if below is not None:
            parity = compare(below, leaves, allow_float64(below, leaves, TOLERANCE), dtypes=True)
        else:
            _guard(system, proved_at, updates, leaves)
        below = leaves
        at = replace(config, mode=mode)
        with RunDir.create(runs_dir, system.name, at.parts, config.seed, at, place=system.place) as run:
            result = train_to_end(system, at, run, quiet=quiet)
            rungs.append(Rung(mode, parity, run.path, result, run.meta["sessions"][-1].get("notes", {})))
        on_rung(rungs[-1])
    return rungs


def _updates(system: System, config: RunConfig, n: int, start: Snapshot | None = None) -> Arrays:
    """Everything that `n` updates leave: losses on the way, parameters, the optimisers' moments, the buffer."""
    with precision(config):
        trainer = make_trainer(system, config, start)
        losses: Arrays = {}
        for first, last in pairwise(sorted({0, n, *(mark for mark in config.breaks if mark < n)})):
            for name, values in trainer.run(first, last - first).items():  # a phase may tell other things
                losses[name] = np.append(losses.get(name, values[:0]), values)
        end = trainer.snapshot()
    moments = {
        f"{slot} of {name}": array
        for state in end.optimizers.values()
        for name, slots in state.moments.items()
        for slot, array in slots.items()
    }
    return {**losses, **end.parameters, **moments, **_leaves(end.buffer, "buffer")}


def _leaves(saved: Any, name: str) -> Arrays:
    """The arrays of a buffer in neutral form, by path."""
    if isinstance(saved, dict):
        return {path: leaf for key, part in saved.items() for path, leaf in _leaves(part, f"{name}.{key}").items()}
    return {} if saved is None else {name: saved}


def _guard(system: System, config: RunConfig, n: int, leaves: Arrays) -> None:
    """The comparison must be able to fail: moves one parameter at the start and requires DIFFERENT."""
    with precision(config):
        start = make_trainer(system, config).snapshot()
    name = next(name for state in start.optimizers.values() for name in state.trained)
    moved = {**start.parameters, name: start.parameters[name] + NUDGE}
    other = _updates(system, config, n, Snapshot(moved, {}))
    if compare(leaves, other, allow_float64(leaves, other, TOLERANCE)).verdict is not Verdict.DIFFERENT:
        raise DifferentError(f"moving {name} by {NUDGE} changed nothing after {n} updates: the comparison is hollow.")
