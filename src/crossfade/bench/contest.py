"""Settings of contenders: each a process of its own that takes turns with the others, promises about them, a table.

A contender may be measured in several ways: with all of the machine's cores, with a single one, with its work shared
among devices. A promise is about the fastest way of a contender, and is held against the fastest way of the other.
`contest_worker.py` is the other end of a process.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..run.provenance import session
from .harness import Process, best_ratio, median_ratio, print_circumstances, print_promise, wide_console

ALONE, SHARED = ", one core", ", a device per core"
CORES = len(os.sched_getaffinity(0))
Contenders = Mapping[str, dict[str, Any]]
"""The request of each contender; `cores` says how many it may use, the rest goes to its process."""
Measured = dict[str, dict[str, Any]]
"""The figures of each contender."""


class Promise(NamedTuple):
    """A figure of a contender and what it must be at least, or at most where it is memory or the time of compiling."""

    setting: str
    contender: str
    figure: str  # "steps" per second, "gigabytes", "compile_s", or "ratio" of speeds
    needed: float
    baseline: str | None = None
    spread: bool = False
    """Whether it is kept when one round of all is as good: for speeds that may be equal."""


def both(name: str, request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A contender with all cores, and with one."""
    return {name: {**request, "cores": CORES}, name + ALONE: {**request, "cores": 1}}


def run(
    worker: str,
    settings: Mapping[str, Contenders],
    promises: Iterable[Promise],
    rounds: int,
    seconds: float,
    *,
    flops: Callable[[dict[str, Any]], int | float | None],
    missing: Mapping[str, str] | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """The whole record: circumstances, every setting's figures, and the promises.

    `flops` is the arithmetic that a step of a contender needs, where that can be told; `missing` are contenders that
    cannot run here, and why. Promises about other settings are left out.
    """
    peak, measured = matrix_peak(), {}
    for i, (name, contenders) in enumerate(settings.items(), 1):
        if progress:
            print(f"setting {i} of {len(settings)}: {name}", file=sys.stderr)
        measured[name] = measure(worker, contenders, rounds, seconds, missing or {})
        for of, row in measured[name].items():
            if "steps" in row and (needed := flops(contenders[of])) is not None:
                row["peak_share"] = row["steps"] * needed / max(peak.values())
    return {
        "session": session(),
        "rounds": rounds,
        "peak_flops": peak,
        "settings": measured,
        "promises": judge([promise for promise in promises if promise.setting in settings], measured),
    }


def measure(worker: str, contenders: Contenders, rounds: int, seconds: float, missing: Mapping[str, str]) -> Measured:
    """Every contender's figures; those that cannot run here say why."""
    found: Measured = {}
    running: dict[str, Process] = {}
    try:
        for name, request in contenders.items():
            if name in missing:
                found[name] = {"left_out": missing[name]}
                continue
            own = {key: value for key, value in request.items() if key != "cores"}
            running[name] = Process(worker, own, request["cores"])
            found[name] = {**running[name].ready, "rounds": []}
        for _ in range(rounds):
            for name, process in running.items():
                passes = max(1, round(seconds / found[name]["pass_s"]))
                found[name]["rounds"].append(process.turn(passes))
    finally:
        for process in running.values():
            process.close()
    for name in running:
        found[name] |= figures(found[name]["rounds"]) | {"load": os.getloadavg()[0]}
    return found


def figures(turns: list[dict[str, float]]) -> dict[str, float]:
    """Medians over the rounds, and how far the rounds lie apart."""
    wall = [turn["wall_step"] for turn in turns]
    return {
        "steps": 1 / statistics.median(wall),
        "steps_low": 1 / max(wall),
        "steps_high": 1 / min(wall),
        "steps_per_cpu_s": 1 / statistics.median(turn["cpu_step"] for turn in turns),
        "gigabytes": max(turn["peak_mb"] for turn in turns) / 1024,
    }


def judge(promises: Iterable[Promise], settings: Mapping[str, Measured]) -> list[dict[str, Any]]:
    """Each promise: what was found, and whether it suffices; what could not be measured is not kept."""
    rows = []
    for promise in promises:
        own = _variants(promise.contender, settings[promise.setting]).values()
        fastest, ratios = max(own, key=lambda row: row["steps"]), {}
        if promise.baseline is not None:
            beside = _variants(promise.baseline, settings[promise.setting])
            ratios = {n: median_ratio(row["rounds"], fastest["rounds"], "wall_step") for n, row in beside.items()}
            found = min(ratios.values(), default=None)
        else:
            found = fastest["steps"] if promise.figure == "steps" else max(row[promise.figure] for row in own)
        least, best = promise.figure not in ("gigabytes", "compile_s"), found
        if promise.spread and found is not None:
            beside = _variants(promise.baseline or "", settings[promise.setting])
            best = min(best_ratio(row["rounds"], fastest["rounds"], "wall_step") for row in beside.values())
        kept = best is not None and (best >= promise.needed if least else best <= promise.needed)
        rows.append({**promise._asdict(), "found": found, "ratios": ratios, "kept": kept})
    return rows


def _variants(name: str, measured: Measured) -> Measured:
    """What was measured of a contender, with all cores, with one, and with a device on each."""
    names = (name, name + ALONE, name + SHARED)
    return {name: measured[name] for name in names if "rounds" in measured.get(name, {})}


def show(record: dict[str, Any], units: Mapping[str, str] | None = None) -> None:
    """Tables for people; `units` says what the steps of a setting are, where they are not steps of an environment."""
    console = wide_console()
    print_circumstances(console, record["session"])
    peak = record["peak_flops"]
    console.print(f"matrix products: torch {peak['torch'] / 1e9:.0f}, JAX {peak['jax'] / 1e9:.0f} GFLOP/s")
    for name, contenders in record["settings"].items():
        console.print(_table(name, (units or {}).get(name, "steps"), contenders))
    show_promises(record)


def show_promises(record: dict[str, Any]) -> None:
    """A line for each promise."""
    console = wide_console()
    for row in record["promises"]:
        print_promise(console, row["kept"], f"{row['setting']}: {_words(row)}")


def _words(row: dict[str, Any]) -> str:
    if row["found"] is None:
        return f"{row['contender']} could not be held against {row['baseline']}: left out"
    if row["figure"] == "ratio":
        each = " and ".join(f"{ratio:.4g}x {name}" for name, ratio in row["ratios"].items())
        return f"{row['contender']} is {each}, promised {row['needed']:g}x" + (" in one round" if row["spread"] else "")
    if row["figure"] == "gigabytes":
        return f"{row['contender']} holds {row['found']:.2f} GB at most, promised {row['needed']:g}"
    if row["figure"] == "compile_s":
        return f"{row['contender']} compiles in {row['found']:.1f} s at most, promised {row['needed']:g}"
    return f"{row['contender']} makes {row['found'] / 1e6:.2f} M steps/s, promised {row['needed'] / 1e6:g} M"


def _table(title: str, unit: str, contenders: Measured) -> Any:
    from rich.table import Table

    heads = ("contender", f"{unit}/s", "from..to", "per CPU s", "compile s", "peak GB", "of peak", "load")
    table = Table(*heads, title=title, title_justify="left")
    for name, row in contenders.items():
        if "left_out" in row:
            table.add_row(name, f"left out: {row['left_out']}")
            continue
        table.add_row(
            name,
            _rate(row["steps"]),
            f"{_rate(row['steps_low'])}..{_rate(row['steps_high'])}",
            _rate(row["steps_per_cpu_s"]),
            f"{row['compile_s']:.1f}",
            f"{row['gigabytes']:.2f}",
            f"{row['peak_share']:.1%}" if "peak_share" in row else "",
            f"{row['load']:.1f}",
        )
    return table


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def matrix_peak() -> dict[str, float]:
    """Measured in a process of its own: this one stays free of frameworks."""
    command = "import json; from crossfade.bench.flops import matrix_peak; print(json.dumps(matrix_peak(4.0)))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
