"""What every verb takes, and how it speaks."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..ranges import check


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


def finite(tree: Any) -> Any:
    """The same tree, ready for JSON: None in place of numbers that it has not, text in place of paths."""
    if isinstance(tree, dict):
        return {name: finite(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    if isinstance(tree, Path):
        return str(tree)
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def print_json(value: Any) -> int:
    """Strict JSON on standard output."""
    print(json.dumps(finite(value), indent=1))
    return 0
