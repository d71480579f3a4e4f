"""A run from its config to its end: make the trainer of the mode, loop over chunks, log, evaluate, save, resume."""

import contextlib
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .. import checkpoint
from ..envs.dag.rewards import find_bad
from ..errors import CheckpointError
from ..loading import load_attribute
from ..registry import SYSTEMS, lookup
from ..run import Log, Progress, RunDir, StopOnSignal, run_chunks
from ..run.files import write_array
from ..run.finite import check_finite
from ..run.provenance import digests
from ..run.settings import RunConfig
from .trainer import Snapshot, Trainer, as_arrays, columns


def make_trainer(system: str, config: RunConfig, snapshot: Snapshot | None = None, step: int = 0) -> Trainer:
    """The trainer of `config.mode`, at the start or where a snapshot was taken."""
    item = lookup("system", SYSTEMS, system)
    torch_system = load_attribute(item.torch)(config)
    start = torch_system.parameters()
    snapshot = snapshot or Snapshot(start)
    _check_fits(snapshot.parameters, start)
    if config.mode == "torch":
        from .torch_loop import TorchTrainer

        return TorchTrainer(torch_system, snapshot, step)
    if config.mode == "torch_pure":
        from .torch_pure import TorchPureTrainer

        return TorchPureTrainer(torch_system, snapshot, step)
    jax_system = load_attribute(item.jax)(config)
    if config.mode == "jax_minimal":
        from .jax_minimal import JaxMinimalTrainer

        return JaxMinimalTrainer(torch_system, jax_system, snapshot, step)
    if config.mode == "jax_policy":
        from .jax_policy import JaxPolicyTrainer

        return JaxPolicyTrainer(jax_system, torch_system, snapshot, step)
    from .jax_full import JaxFullTrainer

    return JaxFullTrainer(jax_system, torch_system, snapshot, step)


def _check_fits(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """A checkpoint must hold the parameters of this config, in its precision."""
    form = lambda array: "nothing" if array is None else f"{array.dtype} {array.shape}"
    wrong = [
        f"  {name}: expected {form(expected.get(name))}, got {form(found.get(name))}"
        for name in expected | found
        if form(expected.get(name)) != form(found.get(name))
    ]
    if wrong:
        raise CheckpointError(
            "the checkpoint does not fit this config:\n" + "\n".join(wrong) + "\nUse the run's own settings."
        )


def adopt(system: str, config: RunConfig, weights: Path) -> tuple[Snapshot, str]:
    """Where a run begins that takes over the parameters of another one, with a fresh optimiser at step 0.

    A system whose parameters are worth nothing alone takes over more, in its method `adopt`, and has something to say.
    """
    run, torch_system = RunDir(weights), load_attribute(lookup("system", SYSTEMS, system).torch)(config)
    bundle = checkpoint.load(run.checkpoints if run.checkpoints.is_dir() else weights, side="numpy")
    parameters, buffer, note = bundle.params, None, ""
    if hasattr(torch_system, "adopt"):
        saved = run.read_config(type(config)) if run.config_path.is_file() else None
        parameters, buffer, note = torch_system.adopt(parameters, (bundle.replay or {}).get("buffer"), saved)
    _check_fits(parameters, torch_system.parameters())
    return Snapshot(parameters, buffer=as_arrays(buffer)), note


def _statistics(state: Snapshot) -> dict[str, np.ndarray]:
    """How the policy's observations are normalised, if they are: exported beside its parameters, of no use without."""
    found = (state.buffer or {}).get("statistics", {})
    return {f"normalizer.{name}": array for name, array in found.items()}


def _changed(before: dict[str, str], now: dict[str, str]) -> list[str]:
    return [name for name in before | now if before.get(name) != now.get(name)]


@contextlib.contextmanager
def precision(config: RunConfig) -> Iterator[None]:
    """64-bit JAX for a float64 run, and only for that."""
    if config.dtype == "float32" or config.mode in ("torch", "torch_pure"):
        yield
        return
    import jax

    with jax.enable_x64(True):
        yield


def train(
    system: str,
    config: RunConfig,
    run: RunDir,
    *,
    resume: bool = False,
    start: Snapshot | None = None,
    quiet: bool = False,
) -> dict[str, Any]:
    """Trains in `run`'s folder to `config.steps`; returns the last evaluation and speeds. Ctrl-C is safe.

    A run that is not resumed begins where `start` says, by default at parameters of its own.
    """
    with precision(config):
        if resume:
            config.check_resumed(run.read_config(type(config)))
        bundle = checkpoint.load(run.checkpoints, side="numpy") if resume else None
        began_at = bundle.step if bundle else 0
        snapshot = Snapshot(bundle.params, bundle.optimizer, bundle.replay["buffer"]) if bundle else start
        trainer = make_trainer(system, config, snapshot, began_at)
        sources = digests(config.sources)
        if bundle and (changed := _changed(bundle.meta.get("sources", sources), sources)):
            raise CheckpointError(
                f"{', '.join(changed)}: expected what the run has read so far, got other contents. Put them back, or "
                f"begin a new run with --weights {run.path}."
            )
        if resume:
            run.resume(began_at)
            run.save_config(config)
        seconds: list[tuple[int, float]] = []

        def body(step: int, n: int) -> dict[str, np.ndarray]:
            began = time.perf_counter()
            metrics = trainer.run(step, n)
            check_finite(metrics, step, lambda: find_bad(getattr(config, "env", None)))
            seconds.append((n, time.perf_counter() - began))
            metrics |= columns([config.course(i) for i in range(step, step + n)])
            return {f"train/{name}": values for name, values in metrics.items()} | {"updates": step + 1 + np.arange(n)}

        def save(step: int, window: dict[str, np.ndarray]) -> None:
            state = trainer.snapshot()
            checkpoint.save(
                run.checkpoints,
                params=state.parameters,
                buffers=_statistics(state),
                optimizer=state.optimizer,
                replay={"window": window, "buffer": state.buffer},
                step=step,
                keep=config.keep,
                meta={"system": system, "mode": config.mode, "sources": sources},
            )

        evaluation: dict[str, float] = {}

        def evaluate(step: int) -> dict[str, float]:
            found = trainer.evaluate()
            for name, array in found.arrays.items():
                write_array(run.eval / f"{name}.npy", array)
            evaluation.update(found.metrics)
            return found.metrics

        with (
            Log(run, quiet=True) as log,
            Progress(config.steps, start=began_at, title=f"{system} {config.mode}", quiet=quiet) as bar,
            StopOnSignal(quiet=quiet) as stop,
        ):
            reached = run_chunks(
                config.steps,
                config.chunk,
                body,
                start=began_at,
                window=bundle.replay["window"] if bundle else None,
                on_log=log,
                log_every=config.log_every,
                on_eval=evaluate,
                eval_every=config.eval_every,
                on_checkpoint=save,
                checkpoint_every=config.checkpoint_every,
                on_progress=bar.update,
                stop=stop,
            )
        parts = {
            f"time/{part}": spent / sum(trainer.clock.seconds.values()) for part, spent in trainer.clock.seconds.items()
        }
        result = {**evaluation, **speed(seconds), **parts}
        if reached == config.steps:
            run.finish(reached, result)
        return result


def speed(chunks: list[tuple[int, float]]) -> dict[str, float]:
    """Iterations per second of the median chunk, and what the first chunk took beyond it: the time of compiling."""
    if not chunks:
        return {}
    steady = statistics.median(seconds / n for n, seconds in (chunks[1:] or chunks))
    first_n, first = chunks[0]
    return {"time/its": 1 / steady, "time/compile": max(0.0, first - first_n * steady) if chunks[1:] else float("nan")}
