"""What the contract suite asks of a system: by its record alone, in seconds."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from compilations import compilations
from crossfade import checkpoint
from crossfade.config import apply
from crossfade.loading import load_attribute
from crossfade.registry import SYSTEMS, find
from crossfade.run import RunDir
from crossfade.run.settings import Mode, RunConfig
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.saving import snapshot_of
from crossfade.trainers.system import Snapshot
from crossfade.trainers.training import train

TOYS = (
    "toy:RECORD",
    "toy_actor_critic:RECORD",
    "toy_point:RECORD",
    "toy_style:RECORD",
)  # from outside: their folder is on the path, and no more is known
ALL = (*SYSTEMS, *TOYS)
HALF = 4
PACE = (f"log_every={HALF}", f"checkpoint_every={HALF}", "eval_every=0")
TOLERANCE = 1e-9  # float64, relative to each leaf's scale


def tiny(system: str) -> tuple[str, ...]:
    """The words of a run of two halves of `HALF` updates."""
    words = find(system).tiny
    assert {f"steps={2 * HALF}", f"chunk={HALF}"} <= set(words), f"tiny of {system}: expected steps=8 and chunk=4"
    return (*words, *PACE)


def settings(system: str, mode: Mode, dtype: str = "float64") -> RunConfig:
    return apply(load_attribute(find(system).config)(), (*tiny(system), f"mode={mode}", f"dtype={dtype}"))


# In memory


@dataclass(frozen=True)
class Whole:
    """A run without a stop: the metrics of its halves, the state at the start, in the middle and at the end, and what
    the second half compiled."""

    start: Snapshot
    first: dict[str, np.ndarray]
    middle: Snapshot
    second: dict[str, np.ndarray]
    end: Snapshot
    compiled: tuple[str, ...] = ()  # by the second half


@cache
def whole(system: str, mode: Mode) -> Whole:
    config = settings(system, mode)
    with precision(config):
        trainer = make_trainer(find(system), config)
        start = trainer.snapshot()
        first, middle = trainer.run(0, HALF), trainer.snapshot()
        with compilations() as compiled:
            second = trainer.run(HALF, HALF)
        return Whole(start, first, middle, second, trainer.snapshot(), tuple(compiled))


def go_on(system: str, mode: Mode, snapshot: Snapshot) -> tuple[dict[str, np.ndarray], Snapshot]:
    """The second half, from where a snapshot was taken."""
    config = settings(system, mode)
    with precision(config):
        trainer = make_trainer(find(system), config, snapshot, HALF)
        return trainer.run(HALF, HALF), trainer.snapshot()


def leaves(tree: object, prefix: str = "") -> dict[str, np.ndarray]:
    """Every array of nested dicts, by path."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        return {prefix: np.asarray(tree)}
    return {name: leaf for key, part in tree.items() for name, leaf in leaves(part, f"{prefix}/{key}").items()}


def everything(snapshot: Snapshot) -> dict[str, np.ndarray]:
    """Parameters, moments of every optimiser, and the buffer."""
    moments = {name: state.moments for name, state in snapshot.optimizers.items()}
    return leaves({"parameters": snapshot.parameters, "moments": moments, "buffer": snapshot.buffer})


def assert_equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Bit for bit, types too."""
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        assert found[name].dtype == leaf.dtype, name
        assert np.array_equal(found[name], leaf), name


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Within rounding of float64."""
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        assert found[name].shape == leaf.shape and found[name].dtype == leaf.dtype, name
        if leaf.dtype.kind == "f":
            scale = max(np.abs(leaf).max(initial=0.0), 1e-12)
            assert np.abs(found[name] - leaf).max(initial=0.0) / scale <= TOLERANCE, name
        else:
            assert np.array_equal(found[name], leaf), name


# On disk


class Killed(BaseException):
    """As a process that is gone: nothing catches it."""


def run_on_disk(system: str, config: RunConfig, folder: Path) -> RunDir:
    """A run in a folder of its own, to its end."""
    record = find(system)
    with RunDir.create(folder, record.name, config.parts, config.seed, config, place=record.place) as run:
        train(record, config, run, quiet=True)
    return run


def saved(run: Path) -> dict[str, np.ndarray]:
    """All that the last checkpoint of a run holds."""
    return everything(snapshot_of(checkpoint.load(run / "checkpoints", side="numpy")))


def rows(run: Path) -> list[dict[str, Any]]:
    """What was logged, without times."""
    kept = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "wall" and not k.startswith("time/")} for row in kept]


def contents(folder: Path) -> dict[str, bytes]:
    """Every byte under a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
