"""What every verb takes, and how it speaks."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..ranges import check
from ..run.files import strict_json


@dataclass(kw_only=True)
class Common:
    runs_dir: Path = Path("runs")
    """Where reports and runs are written."""
    quiet: bool = False
    """Print nothing but errors and the result."""
    json: bool = False
    """Print the result as JSON on standard output, and nothing else there."""

    def __post_init__(self) -> None:
        check(self)


def status(text: str, common: Common):
    """A spinner on standard error while something takes its time."""
    from rich.console import Console
    from rich.markup import escape

    return Console(stderr=True, quiet=common.quiet or common.json).status(escape(text))


@contextmanager
def telling(what: str, done: Callable[[], Mapping[str, Path]]) -> Iterator[None]:
    """Around work that makes one run after another: Ctrl-C says which are `done`, by name, and how to see them."""
    try:
        yield
    except KeyboardInterrupt as stop:
        runs = done()
        seen = f". See what is done: crossfade report {' '.join(map(str, runs.values()))}" if runs else ""
        more = f"; {stop}" if stop.args else ""
        raise KeyboardInterrupt(f"{what}: {', '.join(runs) or 'nothing yet'}{seen}{more}") from stop


def print_json(value: Any) -> int:
    """Strict JSON on standard output."""
    print(strict_json(value))
    return 0
