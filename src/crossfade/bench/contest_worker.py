"""One process of a contest: one contender. `contest.py` starts it, and asks for a turn by a line of input.

It answers in lines of JSON: first how long it took to get ready, then seconds and peak memory after every turn. So
contenders take turns and a disturbance of the machine meets all of them, while each has memory of its own.
"""

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable


@runtime_checkable
class Contender(Protocol):
    """Something that makes steps."""

    steps: int  # in one pass

    def once(self) -> None:
        """A pass; done when it returns."""
        ...


def serve(kinds: Mapping[str, Callable[..., Contender]]) -> None:
    """Makes the contender that the command line asks for, warms it up, and gives it its turns."""
    request = json.loads(sys.argv[1])
    began = time.perf_counter()
    contender = kinds[request.pop("kind")](**request)
    first, second = (turn(contender, 1)["wall"] for _ in range(2))
    _answer({"ready_s": time.perf_counter() - began, "compile_s": max(0.0, first - second), "pass_s": second})
    for line in sys.stdin:
        _answer(turn(contender, int(line)))


def _answer(value: dict[str, float]) -> None:
    print(json.dumps(value), flush=True)


def turn(contender: Contender, n: int) -> dict[str, float]:
    """Seconds per step over `n` passes, of the clock and of all threads together."""
    wall, cpu = time.perf_counter(), cpu_seconds()
    for _ in range(n):
        contender.once()
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    return {"wall": wall / n, "wall_step": wall / n / contender.steps, "cpu_step": cpu / n / contender.steps} | {
        "peak_mb": peak_mb()
    }


def cpu_seconds() -> float:
    """The CPU seconds of this process and its children."""
    ticks = 0
    for child in multiprocessing.active_children():
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # in the program, in the kernel
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


def peak_mb() -> float:
    """Most memory that this process has held; the usual measure counts that of its parent before the start too."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
