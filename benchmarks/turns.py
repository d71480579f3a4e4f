"""How fast this tree is beside an earlier commit: the same work in both, in turns.

python benchmarks/turns.py 4836af9 gflownet.torch bridge.step [--rounds 9] [--seconds 2]

BASE is checked out beside this tree. In every round each tree does the work in a fresh process, one after the other,
and the next round begins with the other one: what else the machine does, and how memory happens to lie, falls on both.
A process compiles, warms up, and works for `--seconds` in blocks; its figure is the median block. The ratio is BASE's
time over ours within a round, above 1 where this tree is quicker: the median over the rounds, with an interval for it
that holds for any law of the noise. `itself` as BASE takes this tree against itself: what the method cannot tell apart.

Work is what the benches of each tree measure, in that tree's own defaults. The last column says whether the first
losses are the same; where rules or features have changed since, they are not.
"""

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parents[1]
BLOCKS = 7
SHARED = "TURNS_SHARED"  # the folder of what both trees begin with
MODES = ("torch", "torch_pure", "jax_minimal", "jax_policy", "jax_full")
NETS = {"": ((8, 64, 64, 4), 32), "_large": ((32, 256, 256, 8), 256)}
GRID = ("env=grid", "env.n_dim=2", "env.length=16")
PPO = {"jax_full": {"updates": 4}}


class Work(NamedTuple):
    """Something to be repeated, and what was computed by it, to be compared between trees."""

    once: Callable[[], Any]
    numbers: Callable[[], list[float]]


def place(*names: str) -> Any:
    """The first of these modules of the package that its tree has: rooms have moved."""
    for name in names:
        try:
            return importlib.import_module(f"crossfade.{name}")
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith("crossfade."):
                raise
    raise SystemExit(f"none of {', '.join(names)} is in this tree")


def bridge(kind: str, net: str) -> Work:
    """Updates of a small or large network by `bridge.Step`, one a call or 32."""
    contenders = place("bench.bridge_contenders", "bench.contenders").Contenders(*NETS[net])
    run = getattr(contenders, kind)()
    first = run()
    return Work(run, lambda: [first])


def gflownet(mode: str) -> Work:
    """Iterations of a slightly trained policy that stays the same: the one that the first process has made."""
    worker = place("systems.gflownet.bench_worker", "bench.gflownet_worker")
    from crossfade.config import apply

    config = apply(worker.GFlowNetConfig(), GRID)
    kept = Path(os.environ[SHARED]) / "gflownet.npz"
    if not kept.exists():
        np.savez(kept, **worker.trained(config, 300))
    contender, snapshot = worker.CONTENDERS[mode], worker.Snapshot(dict(np.load(kept)))
    trainer = contender.make(apply(config, (*contender.words, *worker.STILL)), snapshot)
    many = 1000 if mode == "jax_full" else 10
    first = trainer.run(0, many)
    return Work(lambda: trainer.run(0, many), lambda: [float(value) for value in first["loss"][:10]])


def trading(mode: str) -> Work:
    """Updates of PPO."""
    worker = place("systems.trading.bench_worker", "bench.trading_worker")
    ppo = worker.Ppo([f"mode={mode}", "n_envs=64"], **PPO.get(mode, {}))
    first = ppo.trainer.run(0, ppo.updates)
    return Work(ppo.once, lambda: [float(value) for value in first["loss"]])


def world(kind: str, **request: Any) -> Work:
    """Steps of accounts under a linear policy."""
    worker = place("systems.trading.bench_worker", "bench.trading_worker")
    return Work(worker.KINDS[kind](**request).once, lambda: [])


WORK: dict[str, Callable[[], Work]] = {
    **{f"bridge.{kind}{net}": lambda k=kind, n=net: bridge(k, n) for net in NETS for kind in ("step", "epoch")},
    **{f"gflownet.{mode}": lambda m=mode: gflownet(m) for mode in MODES},
    **{f"trading.{mode}": lambda m=mode: trading(m) for mode in MODES},
    "trading.world_jax": lambda: world("jax", n=1000),
    "trading.world_numpy": lambda: world("numpy", n=1000),
    "trading.world_plain": lambda: world("one", world="plain"),
}


def measure(name: str, seconds: float) -> dict[str, Any]:
    """Seconds of the clock and of the processor for one repetition, in this process."""
    import torch

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    work = WORK[name]()
    began = time.perf_counter()
    work.once()
    once = time.perf_counter() - began
    if once < seconds:  # the first may have compiled
        began = time.perf_counter()
        work.once()
        once = time.perf_counter() - began
    count = max(1, round(seconds / BLOCKS / once))
    blocks = [block(work.once, count) for _ in range(BLOCKS + 1)][1:]
    wall, cpu = (statistics.median(column) for column in zip(*blocks, strict=True))
    return {"wall": wall, "cpu": cpu, "numbers": work.numbers()}


def block(once: Callable[[], Any], count: int) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        once()
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


def in_process(tree: Path, names: Sequence[str], seconds: float, cache: Path) -> dict[str, dict[str, Any]]:
    """What `measure` finds in a fresh process of this tree; programs compiled in rounds before are used again."""
    own = {"PYTHONPATH": str(tree / "src"), "JAX_COMPILATION_CACHE_DIR": str(cache)}
    own |= {
        SHARED: str(cache.parent),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "torch"),
    }
    command = [sys.executable, __file__, "--inside", str(tree), *names, "--seconds", str(seconds)]
    finished = subprocess.run(command, capture_output=True, text=True, env=os.environ | own, cwd=tree)
    if finished.returncode:
        raise SystemExit(f"{', '.join(names)} failed in {tree}:\n{finished.stderr[-3000:]}")
    return json.loads(finished.stdout.splitlines()[-1])


def interval(ratios: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """For the median of any law: the innermost pair of order statistics that covers it so often, or the outermost."""
    ordered, n = sorted(ratios), len(ratios)
    inside = lambda k: sum(math.comb(n, i) for i in range(k, n - k + 1)) / 2**n  # between the k-th from below and above
    k = max((k for k in range(1, n // 2 + 1) if inside(k) >= confidence), default=1)
    return ordered[k - 1], ordered[n - k]


def line(name: str, base: Sequence[dict[str, Any]], ours: Sequence[dict[str, Any]]) -> str:
    """The table's row of one kind of work."""
    cells = []
    for clock in ("wall", "cpu"):
        before, now = ([turn[clock] for turn in turns] for turns in (base, ours))
        ratios = [a / b for a, b in zip(before, now, strict=True)]
        low, high = interval(ratios)
        seconds = f"{1e3 * statistics.median(before):9.4g} {1e3 * statistics.median(now):9.4g}"
        cells.append(f"{seconds}  {statistics.median(ratios):.3f} [{low:.3f}, {high:.3f}]")
    return f"{name:21} {'   '.join(cells)}   {same(base[0]['numbers'], ours[0]['numbers'])}"


def same(base: Sequence[float], ours: Sequence[float]) -> str:
    """Whether both trees have computed the same."""
    if not base:
        return ""
    apart = max(abs(a - b) / max(abs(a), 1e-12) for a, b in zip(base, ours, strict=True))
    return "same" if apart == 0 else f"same to {apart:.0e}" if apart < 1e-4 else "other numbers"


def compare(base: str, groups: Sequence[Sequence[str]], rounds: int, seconds: float) -> None:
    """Prints a row for each kind of work; that of a group is done in one process."""
    git = lambda *words: subprocess.run(("git", "-C", str(HERE), *words), check=True, capture_output=True, text=True)
    with tempfile.TemporaryDirectory() as scratch:
        before = HERE if base == "itself" else Path(scratch) / "base"
        if before != HERE:
            git("worktree", "add", "--detach", str(before), base)
        try:
            cores = len(os.sched_getaffinity(0))
            print(f"{cores} cores, {rounds} rounds of {seconds:g} s, load {os.getloadavg()[0]:.1f}; milliseconds")
            print(f"{'':21} wall: {base:>9}      here  ratio                   CPU: {base:>9}      here  ratio")
            for names in groups:
                turns: dict[bool, list[dict[str, Any]]] = {True: [], False: []}  # ours, base
                for number in range(rounds):
                    for ours in (True, False) if number % 2 else (False, True):
                        cache = Path(scratch) / ("ours" if ours else "earlier")
                        turns[ours].append(in_process(HERE if ours else before, names, seconds, cache))
                for name in names:
                    base_turns, own_turns = ([turn[name] for turn in turns[ours]] for ours in (False, True))
                    print(line(name, base_turns, own_turns), flush=True)
        finally:
            if before != HERE:
                git("worktree", "remove", "--force", str(before))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="a commit, or itself")
    parser.add_argument(
        "work", nargs="+", help=f"all, or some of: {', '.join(WORK)}; a prefix such as trading names many"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--together", action="store_true", help="one process a round for all work of a room: quicker")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        import crossfade

        tree = Path(crossfade.__file__).resolve().parents[2]
        if tree != Path(given.base).resolve():
            raise SystemExit(f"expected the package of {given.base}, got that of {tree}")
        print(json.dumps({name: measure(name, given.seconds) for name in given.work}))
        return
    room = lambda name: name.partition(".")[0]
    chosen = [name for name in WORK if any(word in ("all", name, room(name)) for word in given.work)]
    if unknown := [word for word in given.work if word not in ("all", *WORK, *map(room, WORK))]:
        parser.error(f"unknown work {', '.join(unknown)}; known: {', '.join(WORK)}")
    groups = [list(own) for _, own in groupby(chosen, room)] if given.together else [[name] for name in chosen]
    compare(given.base, groups, given.rounds, given.seconds)


if __name__ == "__main__":
    main()
