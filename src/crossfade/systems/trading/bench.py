"""`crossfade bench trading`: steps per second of the environments alone and of whole PPO, and what the promises say.

Every contender is a process of its own (trading_worker.py), once with all of the machine's cores and, where that may
be faster, once with a single one; jax_full also with its accounts shared among the cores (devices=). Those of a setting
take turns. A promise is about the fastest way of a contender, and is held against the fastest way of the other.
Environments hand all 225 numbers of every observation to a linear policy. In whole PPO the modes on the host draw from
NumPy's own generator, and torch steps its accounts in two ways: in a process each, by Gymnasium, as SubprocVecEnv does,
and one after another in its own process, which is faster where a step is this short.
*of peak*: the arithmetic that the networks need per second (one pass forward to act, one forward and backward in each
epoch), as a share of the fastest float32 matrix products that torch or JAX make on this machine.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...bench.harness import Process, end, median_ratio, print_circumstances, print_promise, wide_console
from ...run.provenance import session
from .bench_worker import missing

JAX, NUMPY, PLAIN, PANDAS = "JAX", "vectorised NumPy", "plain Python, one account", "pandas row by row, one account"
TORCH, PURE, FULL = "torch", "torch_pure", "jax_full"
TODAY = "torch, one process per account"
ALONE, SHARED = ", one core", ", a device per core"
ONES = {PLAIN: {"kind": "one", "world": "plain", "cores": 1}, PANDAS: {"kind": "one", "world": "pandas", "cores": 1}}
SEED_NET = "network=seed"
CORES = len(os.sched_getaffinity(0))


class Size(NamedTuple):
    """What is promised of the environment at a number of accounts."""

    steps: float  # per second, at least
    gigabytes: float  # at most


SIZES = {100: Size(0.8e6, 1.0), 1000: Size(1.5e6, 2.0), 5000: Size(1.5e6, 4.0), 10_000: Size(1.5e6, 6.0)}
WITH_ONES = 1000  # the size at which one account at a time is measured too


def worlds(n: int) -> str:
    return f"environment, {n} accounts"


SMALL, PUBLISHED, LARGE = "PPO, 64x2, 256 x 128 steps", "PPO, published network, 256 x 128 steps", "PPO, 10,000 x 128"


def _both(name: str, request: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """A contender with all cores, and with one."""
    return {name: {**request, "cores": CORES}, name + ALONE: {**request, "cores": 1}}


def _worlds(n: int) -> dict[str, dict[str, Any]]:
    return _both(JAX, {"kind": "jax", "n": n}) | {NUMPY: {"kind": "numpy", "n": n, "cores": 1}}


def _ppo(mode: str, *words: str) -> dict[str, Any]:
    return {"kind": "ppo", "words": [f"mode={mode}", *words]}


def _full(*words: str) -> dict[str, dict[str, Any]]:
    """jax_full with all cores, with one, and, where they can be halved, with its accounts shared among them.

    Several updates in a compiled call, as in a run, which makes 100.
    """
    request = {**_ppo("jax_full", *words), "updates": 5}
    shared = {**request, "words": [*request["words"], f"devices={CORES}"], "cores": CORES}
    return _both(FULL, request) | ({FULL + SHARED: shared} if CORES in (2, 4, 8, 16) else {})


SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    **{worlds(n): _worlds(n) | (ONES if n == WITH_ONES else {}) for n in SIZES},
    SMALL: {
        TODAY: {**_ppo("torch"), "processes": True, "cores": CORES},
        **_both(TORCH, _ppo("torch")),
        **_both(PURE, _ppo("torch_pure")),
        "jax_minimal": {**_ppo("jax_minimal"), "cores": CORES},
        "jax_policy": {**_ppo("jax_policy"), "cores": CORES},
        **_full(),
    },
    PUBLISHED: {
        **_both(PURE, _ppo("torch_pure", SEED_NET)),
        **_full(SEED_NET),
    },
    LARGE: {FULL: {**_ppo("jax_full", "n_envs=10000"), "cores": CORES}},
}


class Promise(NamedTuple):
    """A figure of a contender and what it must be at least, or at most where it is memory."""

    setting: str
    contender: str
    figure: str  # "steps" per second, "gigabytes", or "ratio" of speeds
    needed: float
    baseline: str | None = None


PROMISES = (
    *(Promise(worlds(n), JAX, "steps", size.steps) for n, size in SIZES.items()),
    *(Promise(worlds(n), JAX, "gigabytes", size.gigabytes) for n, size in SIZES.items()),
    Promise(worlds(WITH_ONES), JAX, "ratio", 1000.0, PANDAS),
    Promise(SMALL, FULL, "ratio", 10.0, TODAY),
    Promise(SMALL, FULL, "ratio", 10.0, TORCH),
    Promise(SMALL, FULL, "ratio", 1.5, PURE),
    Promise(LARGE, FULL, "gigabytes", 2.0),
)
WORKER = "crossfade.systems.trading.bench_worker"


def main(*, quick: bool = False, as_json: bool = False, quiet: bool = False) -> int:
    """Runs the bench and prints it; 1 when a promise is broken or cannot be measured, for a quick look always 0."""
    record = run(quick=quick, progress=not (quiet or as_json))
    return end(record, show, quick=quick, as_json=as_json)


def run(quick: bool = False, progress: bool = False) -> dict[str, Any]:
    """The whole record: circumstances, every setting's figures, and the promises."""
    rounds, seconds = (3, 0.3) if quick else (7, 2.0)
    peak, settings = matrix_peak(), {}
    for i, (name, contenders) in enumerate(SETTINGS.items(), 1):
        if progress:
            print(f"setting {i} of {len(SETTINGS)}: {name}", file=sys.stderr)
        settings[name] = measure(contenders, rounds, seconds, max(peak.values()))
    return {
        "session": session(),
        "rounds": rounds,
        "peak_flops": peak,
        "settings": settings,
        "promises": promises(settings),
    }


def measure(
    contenders: dict[str, dict[str, Any]], rounds: int, seconds: float, peak: float
) -> dict[str, dict[str, Any]]:
    """Every contender's figures; those that cannot run here say why."""
    found: dict[str, dict[str, Any]] = {}
    running: dict[str, Process] = {}
    try:
        for name, request in contenders.items():
            if name == PANDAS and (why := "; ".join(missing())):
                found[name] = {"left_out": why}
                continue
            own = {key: value for key, value in request.items() if key != "cores"}
            running[name] = Process(WORKER, own, request["cores"])
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
        if contenders[name]["kind"] == "ppo":
            found[name]["peak_share"] = found[name]["steps"] * flops_per_step(contenders[name]["words"]) / peak
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


def flops_per_step(words: Iterable[str]) -> int:
    """What the networks need for a step of the environment, whoever computes it."""
    from ...bench.flops import per_node
    from ...config import apply
    from .config import TradingConfig

    config = apply(TradingConfig(), tuple(words))
    observation_dim = config.params.observation_dim
    shapes = config.architecture.shapes(observation_dim, config.params.n_actions)
    forward = sum(2 * shape[0] * shape[1] for name, shape in shapes.items() if len(shape) == 2)
    return forward + config.epochs * per_node(
        {name: shape for name, shape in shapes.items() if len(shape) == 2}, observation_dim
    )


def promises(settings: dict[str, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Each promise: what was found, and whether it suffices; what could not be measured is not kept."""
    rows = []
    for promise in PROMISES:
        own = _variants(promise.contender, settings[promise.setting]).values()
        fastest, ratios = max(own, key=lambda row: row["steps"]), {}
        if promise.baseline is not None:
            beside = _variants(promise.baseline, settings[promise.setting])
            ratios = {n: median_ratio(row["rounds"], fastest["rounds"], "wall_step") for n, row in beside.items()}
            found = min(ratios.values(), default=None)
        else:
            found = fastest["steps"] if promise.figure == "steps" else max(row["gigabytes"] for row in own)
        least = promise.figure != "gigabytes"
        kept = found is not None and (found >= promise.needed if least else found <= promise.needed)
        rows.append({**promise._asdict(), "found": found, "ratios": ratios, "kept": kept})
    return rows


def _variants(name: str, measured: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What was measured of a contender, with all cores, with one, and with a device on each."""
    names = (name, name + ALONE, name + SHARED)
    return {name: measured[name] for name in names if "rounds" in measured.get(name, {})}


def show(record: dict[str, Any]) -> None:
    """Tables for people."""
    from rich.table import Table

    console = wide_console()
    print_circumstances(console, record["session"])
    peak = record["peak_flops"]
    console.print(f"matrix products: torch {peak['torch'] / 1e9:.0f}, JAX {peak['jax'] / 1e9:.0f} GFLOP/s")
    for name, contenders in record["settings"].items():
        console.print(_table(Table, name, contenders))
    for row in record["promises"]:
        print_promise(console, row["kept"], f"{row['setting']}: {_words(row)}")


def _words(row: dict[str, Any]) -> str:
    if row["found"] is None:
        return f"{row['contender']} could not be held against {row['baseline']}: left out"
    if row["figure"] == "ratio":
        each = " and ".join(f"{ratio:.4g}x {name}" for name, ratio in row["ratios"].items())
        return f"{row['contender']} is {each}, promised {row['needed']:g}x"
    if row["figure"] == "gigabytes":
        return f"{row['contender']} holds {row['found']:.2f} GB at most, promised {row['needed']:g}"
    return f"{row['contender']} makes {row['found'] / 1e6:.2f} M steps/s, promised {row['needed'] / 1e6:g} M"


def _table(table_class: Any, title: str, contenders: dict[str, dict[str, Any]]) -> Any:
    heads = ("contender", "steps/s", "from..to", "per CPU s", "compile s", "peak GB", "of peak", "load")
    table = table_class(*heads, title=title, title_justify="left")
    for name, row in contenders.items():
        if "left_out" in row:
            table.add_row(name, f"left out: {row['left_out']}")
            continue
        table.add_row(
            name,
            f"{row['steps']:,.0f}",
            f"{row['steps_low']:,.0f}..{row['steps_high']:,.0f}",
            f"{row['steps_per_cpu_s']:,.0f}",
            f"{row['compile_s']:.1f}",
            f"{row['gigabytes']:.2f}",
            f"{row['peak_share']:.1%}" if "peak_share" in row else "",
            f"{row['load']:.1f}",
        )
    return table


def matrix_peak() -> dict[str, float]:
    """Measured in a process of its own: this one stays free of frameworks."""
    command = "import json; from crossfade.bench.flops import matrix_peak; print(json.dumps(matrix_peak(4.0)))"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])
