"""Iterations per second of a GFlowNet in every mode, in one run: `crossfade bench gflownet`.

Contenders take turns in rounds, so that a disturbance of the machine meets all of them. Each is warmed up first; what
the first chunk took beyond a later one is its compile time. A chunk ends when its metrics are on the host.
"""

import os
import resource
import statistics
import time
from typing import Any, NamedTuple

from ..algos.gflownet.config import GFlowNetConfig
from ..config import apply
from ..run.provenance import session
from ..trainers.training import make_trainer

SETTINGS = {
    "2-D length 16, batch 100, 128x2": ("env=grid", "env.n_dim=2", "env.length=16"),
    "4-D length 16, batch 128, 256x2": (
        "env=hypergrid",
        "env.n_dim=4",
        "env.length=16",
        "batch_size=128",
        "hidden=256",
    ),
}
CONTENDERS: dict[str, tuple[str, ...]] = {
    "torch": ("mode=torch",),
    "torch_pure": ("mode=torch_pure", "execution=dense"),
    "torch_pure, table": ("mode=torch_pure", "execution=table"),
    "jax_minimal": ("mode=jax_minimal",),
    "jax_policy": ("mode=jax_policy",),
    "jax_full, dense": ("mode=jax_full", "execution=dense"),
    "jax_full": ("mode=jax_full",),
}
HEAD = ("it/s", "from", "to", "wall ms", "CPU ms", "first s", "x torch", "x pure")
TABLE_LIMIT = 4096  # states; above this a table is not worth a contender


class Round(NamedTuple):
    """One chunk of one contender."""

    iterations: int
    wall: float
    cpu: float


def run(rounds: int = 7, seconds: float = 1.0) -> dict[str, Any]:
    """Every setting and contender: figures by name, ready for JSON."""
    return {
        "session": session(),
        "settings": {name: _setting(words, rounds, seconds) for name, words in SETTINGS.items()},
    }


def _setting(words: tuple[str, ...], rounds: int, seconds: float) -> dict[str, Any]:
    trainers, chunk, first, measured = {}, {}, {}, {}
    for name, mode in CONTENDERS.items():
        config = apply(GFlowNetConfig(), (*words, *mode))
        if config.execution == "table" and config.env.length**config.env.n_dim > TABLE_LIMIT:
            continue
        trainers[name] = make_trainer("gflownet", config)
        first[name], chunk[name] = _warm_up(trainers[name], seconds)
        measured[name] = []
    steps = dict.fromkeys(trainers, 0)
    for _ in range(rounds):
        for name, trainer in trainers.items():
            n = chunk[name]
            wall, cpu = time.perf_counter(), time.process_time()
            trainer.run(steps[name], n)
            measured[name].append(Round(n, time.perf_counter() - wall, time.process_time() - cpu))
            steps[name] += n
    return {name: _figures(rows, first[name]) for name, rows in measured.items()}


def _warm_up(trainer: Any, seconds: float) -> tuple[float, int]:
    """Compiles, and finds how many iterations fill a round; the compiled loop is compiled for that number."""
    began = time.perf_counter()
    trainer.run(0, 10)
    compiling = time.perf_counter() - began
    began = time.perf_counter()
    trainer.run(0, 10)
    chunk = max(10, round(10 * seconds / (time.perf_counter() - began)))
    trainer.run(0, chunk)
    return compiling, chunk


def _figures(rows: list[Round], compiling: float) -> dict[str, float]:
    rates = [row.iterations / row.wall for row in rows]
    return {
        "its": statistics.median(rates),
        "its_low": min(rates),
        "its_high": max(rates),
        "cpu_ms": 1e3 * statistics.median(row.cpu / row.iterations for row in rows),
        "wall_ms": 1e3 * statistics.median(row.wall / row.iterations for row in rows),
        "first_10_s": compiling,
    }


def main(*, quick: bool = False, as_json: bool = False, quiet: bool = False) -> int:
    """The verb: measures, then prints a table or JSON."""
    from ..verbs.common import print_json

    record = run(rounds=3, seconds=0.3) if quick else run()
    record["peak_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if as_json:
        return print_json(record)
    import torch

    print(
        f"{os.cpu_count()} cores, torch threads {torch.get_num_threads()}, peak memory {record['peak_rss_mb']:.0f} MB"
    )
    for setting, rows in record["settings"].items():
        print(f"\n{setting}\n{'':<20}" + "".join(f"{word:>9}" for word in HEAD))
        for name, row in rows.items():
            times = [row["its"] / rows[base]["its"] for base in ("torch", "torch_pure")]
            figures = [row[key] for key in ("its", "its_low", "its_high", "wall_ms", "cpu_ms", "first_10_s")]
            print(f"{name:<20}" + "".join(f"{value:>9.4g}" for value in (*figures, *times)))
    return 0
