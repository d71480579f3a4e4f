"""`crossfade bench bridge`: one training step, nine ways, side by side in the same process.

Each process (see bridge_worker.py) is pinned to as many CPUs as it has threads. What the project promises is checked at
the end: on one core, and on two in every one of several processes, because a slow mode that strikes one process in
three does not show in one.
"""

import os
import platform
import statistics
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from .bridge_worker import NETS
from .harness import chosen, end, measure_in_process, median_ratio, wide_console

WORKER = "crossfade.bench.bridge_worker"
SMALL, LARGE = NETS
EAGER, BY_HAND = "torch eager", "JAX by hand"
STEP, EPOCH = "bridge.Step", "bridge.Step.epoch of 32"
ACCELERATED, ACCELERATED_EPOCH = "accelerate", "accelerate, epoch of 32"

# (what, network, contender, baseline, least ratio of the medians by number of threads)
PROMISES = (
    ("step against eager", SMALL, STEP, EAGER, {1: 4.0, 2: 3.5}),
    ("epoch against eager", SMALL, EPOCH, EAGER, {1: 12.0, 2: 10.0}),
    ("step against eager", LARGE, STEP, EAGER, {1: 1.0, 2: 1.0}),
    ("step against JAX by hand", SMALL, STEP, BY_HAND, {1: 1 / 1.15}),
    ("step against JAX by hand", LARGE, STEP, BY_HAND, {1: 1 / 1.15}),
    ("accelerate against eager", SMALL, ACCELERATED, EAGER, {1: 4.0, 2: 3.5}),
    ("its epoch against eager", SMALL, ACCELERATED_EPOCH, EAGER, {1: 12.0, 2: 10.0}),
    ("accelerate against eager", LARGE, ACCELERATED, EAGER, {1: 1.0, 2: 1.0}),
    ("accelerate against JAX by hand", SMALL, ACCELERATED, BY_HAND, {1: 1 / 1.15}),
    ("accelerate against JAX by hand", LARGE, ACCELERATED, BY_HAND, {1: 1 / 1.15, 2: 1 / 1.15}),
)


def main(*, quick: bool = False, as_json: bool = False, quiet: bool = False, only: str = "") -> int:
    """Runs the bench and prints it; 1 when a promise is broken, for a quick look always 0."""
    nets = tuple(chosen(NETS, only))
    record = run(processes=1 if quick else 5, quick=quick, progress=not (quiet or as_json), what={"nets": nets})
    return end(record, show, quick=quick, as_json=as_json)


def run(
    threads: tuple[int, ...] = (1, 2),
    processes: int = 5,
    quick: bool = False,
    progress: bool = False,
    worker: str = WORKER,
    what: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The whole record: circumstances, every process's figures, and the promises.

    One-thread figures come from one process, those on more threads from `processes`. `worker` is the module of a
    process, and `what` it is to measure.
    """
    cpus = sorted(os.sched_getaffinity(0))
    plan = [count for count in threads if count <= len(cpus) for _ in range(processes if count > 1 else 1)]
    rounds, seconds = (5, 0.03) if quick else (15, 0.1)
    done = []
    for i, count in enumerate(plan, 1):
        if progress:
            print(f"process {i} of {len(plan)}: {count} thread{'s' * (count > 1)}", file=sys.stderr)
        request = {"cpus": cpus[-count:], "rounds": rounds, "seconds": seconds, **(what or {})}
        done.append(measure_in_process(worker, request, env={}))
    return {
        "machine": {"cpu": _cpu_name(), "cpus": len(cpus), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("torch", "jax", "jaxlib", "equinox", "optax", "numpy")},
        "left_out": [f"{count} threads: only {len(cpus)} CPUs here" for count in threads if count > len(cpus)],
        "rounds": rounds,
        "processes": done,
        "promises": promises(done) if worker == WORKER else [],
    }


def promises(processes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each promise in each process: the median over the rounds of the ratio within a round, and whether it suffices."""
    rows = []
    for i, process in enumerate(processes):
        for what, net, contender, baseline, least in PROMISES:
            if process["threads"] in least and net in process["nets"]:
                slow, fast = (process["nets"][net][name]["rounds"] for name in (baseline, contender))
                ratio = median_ratio(slow, fast, "median_us")
                needed = least[process["threads"]]
                row = {"process": i, "threads": process["threads"], "net": net, "what": what}
                rows.append({**row, "ratio": ratio, "needed": needed, "kept": ratio >= needed})
    return rows


def show(record: dict[str, Any]) -> None:
    """Tables for people: per net and thread count the first process, then the promises over all processes."""
    from rich.table import Table

    console = wide_console()
    versions = ", ".join(f"{name} {number}" for name, number in record["versions"].items())
    console.print(f"{record['machine']['cpu']}, {record['machine']['cpus']} CPUs; {versions}")
    for count in sorted({process["threads"] for process in record["processes"]}):
        same = [process for process in record["processes"] if process["threads"] == count]
        for net in same[0]["nets"]:
            console.print(
                _table(Table, f"{net}, {count} thread{'s' * (count > 1)}, {len(same)} process(es)", same, net)
            )
    for line in record["left_out"]:
        console.print(f"left out: {line}")
    if not record["promises"]:
        return
    table = Table("threads", "net", "what", "needed", "worst", "median", "kept", title="promises", title_justify="left")
    for key in dict.fromkeys((p["threads"], p["net"], p["what"]) for p in record["promises"]):
        rows = [p for p in record["promises"] if (p["threads"], p["net"], p["what"]) == key]
        ratios = [row["ratio"] for row in rows]
        kept = f"{sum(row['kept'] for row in rows)} of {len(rows)}"
        numbers = (f"{x:.2f}x" for x in (rows[0]["needed"], min(ratios), statistics.median(ratios)))
        table.add_row(str(key[0]), *key[1:], *numbers, kept)
    console.print(table)


def _table(table_class: Any, title: str, processes: list[dict[str, Any]], net: str) -> Any:
    heads = ("contender", "us/update", "rounds from..to", "least", "CPU us", "eager/it", "first call s", "RSS +MB")
    table = table_class(*heads, title=title, title_justify="left")
    for name, first in processes[0]["nets"][net].items():
        if "unavailable" in first:
            table.add_row(name, f"left out: {first['unavailable']}")
            continue
        results = [process["nets"][net][name] for process in processes]
        eager = statistics.median(process["nets"][net][EAGER]["median_us"] for process in processes)
        median = statistics.median(result["median_us"] for result in results)
        low, high = (f(r["spread_us"][i] for r in results) for i, f in enumerate((min, max)))
        table.add_row(
            name,
            f"{median:.0f}",
            f"{low:.0f}..{high:.0f}",
            f"{min(result['min_us'] for result in results):.0f}",
            f"{statistics.median(result['cpu_us'] for result in results):.0f}",
            f"{eager / median:.2f}x",
            f"{first['first_call_s']:.1f}",
            f"{first['rss_mb']:.0f}",
        )
    return table


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
