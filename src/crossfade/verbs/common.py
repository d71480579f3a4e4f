"""What every verb takes, and how it speaks."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(kw_only=True)
class Common:
    runs_dir: Path = Path("runs")
    """Where reports and runs are written."""
    quiet: bool = False
    """Print nothing but errors and the result."""
    json: bool = False
    """Print the result as JSON on standard output, and nothing else there."""


def status(text: str, common: Common):
    """A spinner on standard error while something takes its time."""
    from rich.console import Console

    return Console(stderr=True, quiet=common.quiet or common.json).status(text)


def print_json(value: Any) -> int:
    print(json.dumps(value, indent=1))
    return 0
