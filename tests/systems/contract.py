"""What the contract suite asks of a system: by its record alone, in seconds."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from crossfade.config import apply
from crossfade.loading import load_attribute
from crossfade.registry import SYSTEMS, System, find
from crossfade.run.settings import Mode, RunConfig
from crossfade.trainers.making import make_trainer, precision
from crossfade.trainers.system import Snapshot
from crossfade.trainers.trainer import Trainer

TOYS = ("toy:RECORD", "toy_actor_critic:RECORD")  # from outside: their folder is on the path, and nothing else known
ALL = (*SYSTEMS, *TOYS)
HALF = 4
TOLERANCE = 1e-9  # float64, relative to each leaf's scale


def settings(system: str, mode: Mode, *words: str, dtype: str = "float64") -> RunConfig:
    """The system's tiny run, in two halves of `HALF` updates."""
    record = find(system)
    tiny = apply(load_attribute(record.config)(), record.tiny)
    assert (tiny.steps, tiny.chunk) == (2 * HALF, HALF), f"tiny of {system}: expected steps=8 and chunk=4"
    pace = (f"log_every={HALF}", f"checkpoint_every={HALF}", "eval_every=0")
    return apply(apply(tiny, (f"mode={mode}", f"dtype={dtype}", *pace)), words)


def start(record: System, config: RunConfig, snapshot: Snapshot | None = None, step: int = 0) -> Trainer:
    return make_trainer(record, config, snapshot, step)


@dataclass(frozen=True)
class Whole:
    """A run without a stop: its two halves' metrics, and the state in the middle and at the end."""

    first: dict[str, np.ndarray]
    middle: Snapshot
    second: dict[str, np.ndarray]
    end: Snapshot


@cache
def whole(system: str, mode: Mode) -> Whole:
    config = settings(system, mode)
    with precision(config):
        trainer = make_trainer(find(system), config)
        first, middle = trainer.run(0, HALF), trainer.snapshot()
        return Whole(first, middle, trainer.run(HALF, HALF), trainer.snapshot())


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
        assert np.array_equal(found[name], leaf, equal_nan=True), name


def assert_close(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Within rounding of float64."""
    assert found.keys() == expected.keys()
    for name, leaf in expected.items():
        assert found[name].shape == leaf.shape and found[name].dtype == leaf.dtype, name
        scale = max(np.abs(leaf).max(initial=0.0), 1e-12)
        assert np.abs(found[name] - leaf).max(initial=0.0) / scale <= TOLERANCE, name
