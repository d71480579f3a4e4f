"""The ladder: every mode in turn on the same seed. Is it still the same system, how fast is it, what does it learn?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..run import RunDir
from ..run.settings import MODES, Mode, RunConfig
from ..verdict import Comparison, Verdict, allow_float64, compare
from .trainer import Snapshot
from .training import make_trainer, precision, train

TOLERANCE = 1e-9  # float64, relative to each leaf's scale, after some updates
NUDGE = 1e-3


@dataclass(frozen=True)
class Rung:
    """What one mode turned out to be."""

    mode: Mode
    parity: Comparison | None  # with the mode below
    run: Path
    result: dict[str, float]

    def json(self) -> dict[str, Any]:
        """Plain JSON values."""
        parity = None
        if self.parity is not None:
            parity = {"verdict": str(self.parity.verdict), "difference": self.parity.worst.size}
        return {"mode": self.mode, "run": str(self.run), "parity": parity, **self.result}


def climb(
    system: str,
    config: Any,
    runs_dir: Path,
    *,
    modes: Sequence[Mode] = MODES,
    updates: int = 20,
    quiet: bool = False,
    on_rung: Callable[[Rung], Any] = lambda rung: None,
) -> list[Rung]:
    """Proves each mode against the one below over `updates` float64 updates, then trains it for `config.steps`."""
    rungs: list[Rung] = []
    below: dict[str, np.ndarray] | None = None
    for mode in modes:
        leaves = _updates(system, replace(config, mode=mode, dtype="float64"), updates)
        parity = None
        if below is not None:
            parity = compare(below, leaves, allow_float64(below, leaves, TOLERANCE), dtypes=True)
        else:
            _guard(system, replace(config, mode=mode, dtype="float64"), updates, leaves)
        below = leaves
        at = replace(config, mode=mode)
        with RunDir.create(runs_dir, system, at.parts, config.seed, at) as run:
            rungs.append(Rung(mode, parity, run.path, train(system, at, run, quiet=quiet)))
        on_rung(rungs[-1])
    return rungs


def _updates(system: str, config: RunConfig, n: int, start: Snapshot | None = None) -> dict[str, np.ndarray]:
    """Everything that `n` updates leave: the losses on the way, the parameters and the optimiser's moments."""
    with precision(config):
        trainer = make_trainer(system, config, start)
        losses = trainer.run(0, n)
        end = trainer.snapshot()
    moments = {
        f"{slot} of {name}": array for name, slots in end.optimizer.moments.items() for slot, array in slots.items()
    }
    return {**losses, **end.parameters, **moments}


def _guard(system: str, config: RunConfig, n: int, leaves: dict[str, np.ndarray]) -> None:
    """The comparison must be able to fail: moves one parameter at the start and requires DIFFERENT."""
    start = make_trainer(system, config).snapshot()
    name = next(iter(start.parameters))
    moved = {**start.parameters, name: start.parameters[name] + NUDGE}
    other = _updates(system, config, n, Snapshot(moved))
    if compare(leaves, other, allow_float64(leaves, other, TOLERANCE)).verdict is not Verdict.DIFFERENT:
        raise AssertionError(f"moving {name} by {NUDGE} changed nothing after {n} updates: the comparison is hollow")
