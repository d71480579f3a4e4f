"""What every bench does: processes in turn, ratios within a round, promises, a table, an exit code."""

import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import CrossfadeError, UsageError
from ..run.files import strict_json

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
FRESH = {"JAX_ENABLE_COMPILATION_CACHE": "0", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
"""Environment of a process whose compile time is measured: nothing kept from before is used."""


def chosen(settings: Mapping[str, T], only: str) -> dict[str, T]:
    """The settings whose name contains the text, upper or lower case; all of them for an empty one."""
    found = {name: setting for name, setting in settings.items() if only.lower() in name.lower()}
    if not found:
        raise UsageError(f"no setting of this bench has {only!r} in its name. Settings: {'; '.join(settings)}.")
    return found


def end(record: dict[str, Any], show: Callable[[dict[str, Any]], None], *, quick: bool, as_json: bool) -> int:
    """Prints a record as a table or as JSON; 1 when a promise is broken or could not be measured.

    A quick look promises nothing.
    """
    if as_json:
        print(strict_json(record))
    else:
        show(record)
    return 0 if quick or all(promise["kept"] for promise in record["promises"]) else 1


def measure_in_process(module: str, request: Mapping[str, Any], env: Mapping[str, str] = FRESH) -> dict[str, Any]:
    """What `python -m module '<request as JSON>'` prints on its last line, as JSON."""
    command = [sys.executable, "-m", module, json.dumps(request)]
    finished = subprocess.run(command, capture_output=True, text=True, env=os.environ | dict(env))
    if finished.returncode:
        raise CrossfadeError(f"a process of the bench failed:\n{finished.stderr[-2000:]}")
    return json.loads(finished.stdout.splitlines()[-1])


class Process:
    """A contender in a process of its own that has warmed up, tells what it is (`ready`), and waits for its turns.

    Its module prints one line of JSON when it is ready, and one for each line of standard input.
    """

    def __init__(self, module: str, request: Mapping[str, Any], cores: int):
        command = [sys.executable, "-m", module, json.dumps(request)]
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        own = sorted(os.sched_getaffinity(0))[-cores:]
        pin = lambda: os.sched_setaffinity(0, own)  # before any library counts the cores and starts its threads
        self.process = subprocess.Popen(command, **pipes, text=True, env=os.environ | FRESH, preexec_fn=pin)
        self.ready = self._answer()

    def turn(self, passes: int) -> dict[str, float]:
        """The figures of so many passes."""
        assert self.process.stdin
        self.process.stdin.write(f"{passes}\n")
        self.process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        self.process.communicate()

    def _answer(self) -> dict[str, float]:
        assert self.process.stdout
        if line := self.process.stdout.readline():
            return json.loads(line)
        raise CrossfadeError(f"a process of the bench failed:\n{self.process.communicate()[1][-2000:]}")


def median_ratio(slow: Sequence[Mapping[str, float]], fast: Sequence[Mapping[str, float]], figure: str) -> float:
    """The median over the rounds of the ratio of a time within a round: what else the machine did falls on both."""
    return statistics.median(one[figure] / other[figure] for one, other in zip(slow, fast, strict=True))


def best_ratio(slow: Sequence[Mapping[str, float]], fast: Sequence[Mapping[str, float]], figure: str) -> float:
    """The largest ratio within a round."""
    return max(one[figure] / other[figure] for one, other in zip(slow, fast, strict=True))


def wide_console() -> "Console":
    """A console whose tables stay whole in a pipe, which has 80 columns otherwise."""
    from rich.console import Console

    console = Console(highlight=False)
    console.width = max(console.width, 120)
    return console


def print_circumstances(console: "Console", session: Mapping[str, Any]) -> None:
    """Cores and versions, from `run.provenance.session`."""
    versions = ", ".join(f"{name} {number}" for name, number in session["versions"].items())
    console.print(f"{session['cores']} cores; {versions}")


def print_promise(console: "Console", kept: bool, text: str) -> None:
    """One line, PASS or FAIL first."""
    console.print(f"{'PASS' if kept else 'FAIL'}  {text}", soft_wrap=True)


def peak_memory_mb() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
