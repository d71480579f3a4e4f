"""Snapshots of a run as checkpoints, and back."""

from pathlib import Path
from typing import Any

from .. import checkpoint
from ..errors import CheckpointError
from ..optim.state import OptimizerState
from ..registry import System
from ..run import RunDir
from ..run.settings import RunConfig
from .making import check_fits, jax_half, torch_half
from .system import Snapshot, as_saved

SOLE = "policy"  # the name of the optimiser of a system that has one


def save(
    run: RunDir, config: RunConfig, state: Snapshot, step: int, window: dict[str, Any], meta: dict[str, Any]
) -> None:
    """Writes the checkpoint of `step`; `window` is what the log has not written yet."""
    checkpoint.save(
        run.checkpoints,
        params=state.parameters,
        buffers={} if state.buffer is None else config.exported(state.buffer),
        optimizer=_merged(state.optimizers),
        replay={"window": window, "buffer": state.buffer},
        step=step,
        keep=config.keep,
        meta=meta,
    )


def snapshot_of(bundle: checkpoint.Bundle) -> Snapshot:
    """What a checkpoint holds; CheckpointError for one that no run has written."""
    if not isinstance(bundle.replay, dict) or "buffer" not in bundle.replay:
        raise CheckpointError(
            "expected the checkpoint of a run, got one without a buffer. Start from its parameters: --weights."
        )
    return Snapshot(bundle.params, _apart(bundle.optimizer), bundle.replay["buffer"])


def _merged(states: dict[str, OptimizerState]) -> OptimizerState | dict[str, OptimizerState] | None:
    """Optimiser states as a bundle holds them: a sole one without its name, so that any user can restore it."""
    return states[SOLE] if list(states) == [SOLE] else states or None


def _apart(found: OptimizerState | dict[str, OptimizerState] | None) -> dict[str, OptimizerState]:
    return {SOLE: found} if isinstance(found, OptimizerState) else found or {}


def adopt(system: System, config: RunConfig, weights: Path) -> tuple[Snapshot, str]:
    """Where a run begins that takes over the parameters of another one, with fresh optimisers at step 0.

    A system whose parameters are worth nothing alone takes over more, by its config's `adopt`, and has a note to print.
    """
    run = RunDir(weights)
    bundle = checkpoint.load(run.checkpoints if run.checkpoints.is_dir() else weights, side="numpy")
    saved = run.read_config(type(config)) if run.config_path.is_file() else None
    buffer = bundle.replay.get("buffer") if isinstance(bundle.replay, dict) else None
    parameters, buffer, note = config.adopt(bundle.params, buffer, saved)
    half = torch_half if config.mode.startswith("torch") else jax_half
    check_fits(parameters, half(system, config).parameters())
    return Snapshot(parameters, {}, as_saved(buffer)), note
