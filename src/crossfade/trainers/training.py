"""A run from its config to its end: loop over chunks, log, evaluate, save, resume."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import checkpoint
from ..errors import CheckpointError, UsageError
from ..registry import System
from ..run import Log, Progress, RunDir, StopOnSignal, run_chunks, trials
from ..run.files import write_array
from ..run.finite import check_finite, check_finite_parameters
from ..run.provenance import digests
from ..run.settings import RunConfig
from .making import make_trainer, precision
from .saving import save, snapshot_of
from .system import Snapshot
from .trainer import columns


def train(
    system: System,
    config: RunConfig,
    run: RunDir,
    *,
    resume: bool = False,
    start: Snapshot | None = None,
    weights: Path | None = None,
    quiet: bool = False,
    agreed: Callable[[bool], bool] = bool,
) -> dict[str, Any]:
    """Trains in `run`'s folder to `config.steps`; returns the last evaluation and speeds. Ctrl-C is safe.

    A run that is not resumed begins where `start` says, by default at parameters of its own; `weights` names the run
    those of `start` came from, for the ledger of trials. A resumed run is left as it is until the first chunk has
    succeeded: a refusal costs nothing. `agreed` tells whether to stop, from whether this host was asked to.
    """
    with precision(config):
        bundle, began_at, saved = None, 0, None
        if resume:
            saved = run.read_config(type(config))
            config.check_resumed(saved)
            bundle = checkpoint.load(run.checkpoints, side="numpy")
            start, began_at = snapshot_of(bundle), bundle.step
            if began_at > config.steps:
                raise UsageError(
                    f"steps: expected at least {began_at}, which the run has made already, got {config.steps}."
                )
            run.check_resume(began_at)
            if began_at == config.steps and (result := run.result) is not None:
                return {name: value for name, value in result.items() if name != "step"}
        make = lambda: make_trainer(system, config, start, began_at)
        trainer = None if resume else make()  # a system says more of a file that it cannot read than `digests` can
        sources = digests(config.sources)
        if bundle and (changed := _changed(bundle.meta.get("sources", sources), sources)):
            raise CheckpointError(
                f"{', '.join(changed)}: expected what the run has read so far, got other contents. Put them back, or "
                f"begin a new run with --weights {run.path}."
            )
        trainer = trainer or make()
        meta = {"system": system.name, "mode": config.mode, "sources": sources}
        seconds: list[tuple[int, float]] = []
        evaluation: dict[str, float] = {}

        with contextlib.ExitStack() as stack:
            bar = stack.enter_context(
                Progress(config.steps, start=began_at, title=f"{system.name} {config.mode}", quiet=quiet)
            )
            stop = stack.enter_context(StopOnSignal(quiet=quiet))
            logs: list[Log] = []
            opened = time.perf_counter()

            def log() -> Log:
                """The run's log, opened when there is something to write: only then is a resumed run gone on with."""
                if not logs:
                    if resume:
                        run.resume(began_at, config=config)
                    run.annotate(trainer.notes)
                    trials.begin(run, config, weights, saved)
                    logs.append(stack.enter_context(Log(run, since=opened, quiet=True)))
                return logs[0]

            def body(step: int, n: int) -> dict[str, np.ndarray]:
                began = time.perf_counter()
                metrics = trainer.run(step, n)
                check_finite(metrics, step, config.blame)
                seconds.append((n, time.perf_counter() - began))
                log()
                metrics |= columns([config.course(i) for i in range(step, step + n)])
                named = {f"train/{name}": values for name, values in metrics.items()}
                done = step + 1 + np.arange(n)
                return named | {"updates": done, "env_steps": config.env_steps * done}

            def evaluate(step: int) -> dict[str, float]:
                found = trainer.evaluate()
                for name, array in found.arrays.items():
                    write_array(run.eval / f"{name}.npy", array)
                evaluation.update(found.metrics)
                return found.metrics

            def keep(step: int, window: dict[str, Any]) -> None:
                state = trainer.snapshot()
                check_finite_parameters(state.parameters, step, config.blame)
                save(run, config, state, step, window, meta)

            reached = run_chunks(
                config.steps,
                config.chunk,
                body,
                start=began_at,
                breaks=config.breaks,
                window=bundle.replay["window"] if bundle else None,
                on_log=lambda step, row: log()(step, row),
                log_every=config.log_every,
                on_eval=evaluate,
                eval_every=config.eval_every,
                on_checkpoint=keep,
                checkpoint_every=config.checkpoint_every,
                on_progress=bar.update,
                stop=lambda: agreed(stop()),
            )
            if began_at == config.steps:  # a run that was ended between its last checkpoint and its result
                evaluate(reached)
        result = {**evaluation, **speed(seconds), **trainer.clock.shares()}
        if reached == config.steps:
            run.finish(reached, result)
            trials.judged(run, config, "result", result.get(system.score), config.test_set)
        return result


def train_to_end(system: System, config: RunConfig, run: RunDir, *, quiet: bool = False) -> dict[str, Any]:
    """`train` for those who go on afterwards: a run that was stopped before its end stops them too."""
    result, stopped = {}, None
    try:
        result = train(system, config, run, quiet=quiet)
    except KeyboardInterrupt as stop:  # the second one, which does not wait for a checkpoint
        stopped = stop
    if run.result is None:
        saved = any(run.checkpoints.iterdir())
        hint = (f"go on with the run under way: crossfade train --resume {run.path}",) if saved else ()
        raise KeyboardInterrupt(*hint) from stopped
    return result


def speed(chunks: list[tuple[int, float]]) -> dict[str, float]:
    """Updates per second of the median chunk, with the middle half of them, the first one left out; and what that one
    took beyond the median: the time of compiling."""
    if not chunks:
        return {}
    slow, steady, fast = np.quantile([seconds / n for n, seconds in chunks[1:] or chunks], [0.75, 0.5, 0.25]).tolist()
    first_n, first = chunks[0]
    return {
        "time/its": 1 / steady,
        "time/its_low": 1 / slow,
        "time/its_high": 1 / fast,
        "time/compile": max(0.0, first - first_n * steady) if chunks[1:] else float("nan"),
    }


def _changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    return [name for name in before | now if before.get(name) != now.get(name)]
