"""What the words of a verb name: a system, then settings of its config."""

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ..errors import UsageError
from ..registry import System, find, systems

Words = Annotated[Positional[tuple[str, ...]], arg(metavar="SYSTEM KEY=VALUE ...")]


def read_system(words: tuple[str, ...]) -> tuple[System, tuple[str, ...]]:
    """The system that is named first, and the other words."""
    if not words or "=" in words[0]:
        raise UsageError(f"expected a system first. Known: {', '.join(systems())}.")
    return find(words[0]), words[1:]


def read_config(
    system: System, words: tuple[str, ...] = (), file: Path | None = None, preset: str | None = None
) -> Any:
    """The system's config: words before the file, the file before the preset."""
    from ..config import resolve
    from ..loading import load_attribute
    from ..run.memory import check_fits

    config = resolve(load_attribute(system.config)(), presets=system.presets, preset=preset, file=file, words=words)
    check_fits(config.footprint())
    return config
