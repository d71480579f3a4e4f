"""What systems show of their runs, for pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..registry import System, find
from .configured import read_config

if TYPE_CHECKING:
    from ..run import Section

MOST = 6  # runs in one section


def pictures_of(system: System, config: Any, runs: Mapping[str, Path]) -> list[tuple[str, str]]:
    """SVG and caption of every picture that the system makes of these runs, by label."""
    from ..loading import load_attribute

    return load_attribute(system.pictures)(config, dict(runs)) if system.pictures else []


def sections(paths: Sequence[Path]) -> "list[Section]":
    """A section for each world that the runs were trained in, with at most six of its runs."""
    from ..run import RunDir, Section
    from ..run.page import figure

    worlds: dict[Any, tuple[System, Any, dict[str, Path]]] = {}
    for run in map(RunDir.open, paths):
        system = find(run.system)
        config = read_config(system, (), run.config_path)
        world = system.name, config.test_set or str(getattr(config, "env", system.name))
        worlds.setdefault(world, (system, config, {}))[2].setdefault(
            f"{'-'.join(config.parts)} s{config.seed}", run.path
        )
    found = []
    for (_, world), (system, config, runs) in worlds.items():
        if shown := pictures_of(system, config, dict(list(runs.items())[:MOST])):
            found.append(Section(f"What was learned: {world}", [figure(*picture) for picture in shown]))
    return found
