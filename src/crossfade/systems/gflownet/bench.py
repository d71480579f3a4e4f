"""`crossfade bench gflownet`: iterations per second of a GFlowNet in every mode, and what the promises say of them.

A setting is measured in a process of its own (bench_worker.py), with all of the machine's cores and without
compilations kept from before. Beside the speed stand two shares. *padding*: of the states on which the learner
evaluates the networks, those that were not visited or that stand there a second time. *of peak*: the arithmetic that
the algorithm needs (the networks forward and backward, once for each distinct state of a batch) per second, as a share
of the fastest float32 matrix products that torch or JAX make on this machine; work done in vain does not count.
"""

import sys
from typing import Any

from ...bench.harness import (
    chosen,
    end,
    measure_in_process,
    median_ratio,
    print_circumstances,
    print_promise,
    wide_console,
)
from ...run.provenance import session

BASE, EARLY, TABLE, SCAN, FULL = (
    "torch_pure",
    "torch_pure, early stop",
    "torch_pure, table",
    "jax_full, plain scan",
    "jax_full",
)
SMALL = ("env=grid", "env.n_dim=2", "env.length=16")
LARGE = ("env=hypergrid", "env.n_dim=4", "env.length=16", "batch_size=128", "hidden=256")
LARGE_ONES = ("torch", BASE, EARLY, SCAN, FULL)

# name: settings, contenders, whether the policy is trained
SETTINGS = {
    "2-D length 16, batch 100, 128x2, trained": (
        SMALL,
        ("torch", BASE, EARLY, TABLE, "jax_minimal", "jax_policy", SCAN, FULL),
        True,
    ),
    "4-D length 16, batch 128, 256x2, untrained": (LARGE, LARGE_ONES, False),
    "4-D length 16, batch 128, 256x2, trained": (LARGE, LARGE_ONES, True),
}
FIRST, _, LAST = SETTINGS
# (setting, contender, baseline, least ratio of speeds)
PROMISES = (
    (FIRST, FULL, "torch", 40.0),
    (FIRST, FULL, BASE, 5.0),
    (FIRST, FULL, EARLY, 5.0),
    (FIRST, FULL, TABLE, 1.5),
    (LAST, FULL, EARLY, 1.0),
    (LAST, FULL, SCAN, 2.0),
)
WORKER = "crossfade.systems.gflownet.bench_worker"


def main(*, quick: bool = False, as_json: bool = False, quiet: bool = False, only: str = "") -> int:
    """Runs the bench and prints it; 1 when a promise is broken, for a quick look always 0."""
    record = run(quick=quick, progress=not (quiet or as_json), only=only)
    return end(record, show, quick=quick, as_json=as_json)


def run(quick: bool = False, progress: bool = False, only: str = "") -> dict[str, Any]:
    """The whole record: circumstances, every setting's figures, and the promises."""
    rounds, seconds, train = (3, 0.3, 300) if quick else (7, 1.0, 2000)
    settings, asked = {}, chosen(SETTINGS, only)
    for i, (name, (words, contenders, trains)) in enumerate(asked.items(), 1):
        if progress:
            print(f"setting {i} of {len(asked)}: {name}", file=sys.stderr)
        settings[name] = measure_in_process(
            WORKER,
            {
                "words": words,
                "contenders": contenders,
                "train": train if trains else 0,
                "rounds": rounds,
                "seconds": seconds,
            },
        )
    return {"session": session(), "rounds": rounds, "settings": settings, "promises": promises(settings)}


def promises(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Each promise: the median over the rounds of the ratio of speeds within a round, and whether it suffices."""
    rows = []
    for setting, contender, baseline, needed in PROMISES:
        if setting not in settings:
            continue
        measured = settings[setting]["contenders"]
        ratio = median_ratio(measured[baseline]["rounds"], measured[contender]["rounds"], "wall")
        row = {"setting": setting, "contender": contender, "baseline": baseline}
        rows.append({**row, "ratio": ratio, "needed": needed, "kept": ratio >= needed})
    return rows


def show(record: dict[str, Any]) -> None:
    """Tables for people."""
    from rich.table import Table

    console = wide_console()
    print_circumstances(console, record["session"])
    for name, setting in record["settings"].items():
        work, peak = setting["work"], setting["peak_flops"]
        console.print(_table(Table, name, setting["contenders"]))
        console.print(
            f"{setting['threads']} threads, load {setting['load']:.1f}, peak memory {setting['peak_rss_mb']:.0f} MB; "
            f"trajectories of {work['mean_length']:.1f} steps, the longest {work['longest']:.0f}; a batch has "
            f"{work['distinct']:.0f} distinct states and needs {work['flops'] / 1e9:.3g} GFLOP; matrix products: torch "
            f"{peak['torch'] / 1e9:.0f}, JAX {peak['jax'] / 1e9:.0f} GFLOP/s",
            soft_wrap=True,
        )
    for row in record["promises"]:
        found = f"{row['contender']} is {row['ratio']:.2f}x {row['baseline']}, promised {row['needed']:g}x"
        print_promise(console, row["kept"], f"{row['setting']}: {found}")


def _table(table_class: Any, title: str, contenders: dict[str, Any]) -> Any:
    heads = ("contender", "it/s", "from..to", "wall ms", "CPU ms", "compile s", "RSS +MB", "padding", "of peak")
    table = table_class(*heads, "x torch", "x pure", title=title, title_justify="left")
    for name, row in contenders.items():
        table.add_row(
            name,
            f"{row['its']:.4g}",
            f"{row['its_low']:.4g}..{row['its_high']:.4g}",
            f"{row['wall_ms']:.3g}",
            f"{row['cpu_ms']:.3g}",
            f"{row['compile_s']:.1f}",
            f"{row['rss_mb']:.0f}",
            f"{row['padding']:.0%}",
            f"{row['peak_share']:.1%}",
            *(f"{row['its'] / contenders[base]['its']:.3g}" for base in ("torch", BASE)),
        )
    return table
