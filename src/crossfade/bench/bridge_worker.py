"""One process of the bridge bench: it is given a request such as '{"cpus": [0], "rounds": 15, ...}' and prints JSON.

The process pins itself before torch and JAX start their threads, so the number of threads is the number of CPUs it is
given. Contenders take turns in rounds, so that whatever else the machine does falls on all of them.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from .harness import peak_memory_mb

Makers = Mapping[str, Callable[[], Callable[[], float]]]
"""What makes each contender, by its name."""
NETS = {"8-64-64-4, batch 32": ((8, 64, 64, 4), 32), "32-256-256-8, batch 256": ((32, 256, 256, 8), 256)}


def main() -> None:
    request = json.loads(sys.argv[1])
    os.sched_setaffinity(0, request["cpus"])
    import torch

    torch.set_num_threads(len(request["cpus"]))
    from .bridge_contenders import Contenders

    makers = {name: Contenders(*net).makers() for name, net in NETS.items() if name in request.get("nets", NETS)}
    print_record(makers, request)


def print_record(nets: Mapping[str, Makers], request: Mapping[str, Any]) -> None:
    """Measures the contenders of each net in turn, and prints what was found."""
    found = {name: measure(makers, request["rounds"], request["seconds"]) for name, makers in nets.items()}
    record = {
        "threads": len(request["cpus"]),
        "nets": found,
        "peak_rss_mb": peak_memory_mb(),
        "load": os.getloadavg()[0],
    }
    json.dump(record, sys.stdout)


def measure(makers: Makers, rounds: int, seconds: float) -> dict[str, Any]:
    """Every contender's figures on one network; a turn lasts about `seconds`."""
    from .bridge_contenders import EPOCH, Unavailable

    running, results = {}, {}
    for name, make in makers.items():
        before, began = peak_memory_mb(), time.perf_counter()
        try:
            run = make()
        except Unavailable as reason:
            results[name] = {"unavailable": str(reason)}
            continue
        run()
        first = time.perf_counter() - began
        updates = EPOCH if "of 32" in name else 1
        took = min(_timed(run) for _ in range(10))
        running[name] = (run, updates, max(3, int(seconds / took)))
        results[name] = {"first_call_s": first, "rss_mb": peak_memory_mb() - before, "rounds": []}
    for _ in range(rounds):
        for name, (run, updates, calls) in running.items():
            results[name]["rounds"].append(_turn(run, updates, calls))
    for result in results.values():
        if turns := result.get("rounds"):
            medians = [turn["median_us"] for turn in turns]
            result |= {
                "median_us": statistics.median(medians),
                "spread_us": [min(medians), max(medians)],
                "min_us": min(turn["min_us"] for turn in turns),
                "cpu_us": statistics.median(turn["cpu_us"] for turn in turns),
                "wall_us": statistics.median(turn["wall_us"] for turn in turns),
                "min_cpu_us": min(turn["cpu_us"] for turn in turns),
            }
    return results


def _turn(run, updates: int, calls: int) -> dict[str, float]:
    """One contender's turn; microseconds per update."""
    run()
    wall, cpu = time.perf_counter(), time.process_time()
    times = [_timed(run) for _ in range(calls)]
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    unit = 1e6 / updates
    return {
        "median_us": unit * statistics.median(times),
        "min_us": unit * min(times),
        "wall_us": unit * wall / calls,
        "cpu_us": unit * cpu / calls,
    }


def _timed(run) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
