"""What systems show of their runs, for pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..registry import System, find
from .configured import read_config

if TYPE_CHECKING:
    from ..run import Section

MOST = 6  # runs in one section


def pictures_of(system: System, config: Any, runs: Mapping[str, Path]) -> list[tuple[str, str]]:
    """Picture, SVG or an image element, and caption of every one that the system makes of these runs, by label."""
    from ..loading import load_attribute

    return load_attribute(system.pictures)(config, dict(runs)) if system.pictures else []


class World(NamedTuple):
    """Runs that were trained in one world and are judged by the same."""

    system: System
    config: Any  # of the first
    runs: dict[str, Path]  # by label and seed


def worlds(paths: Sequence[Path]) -> dict[str, World]:
    """The runs by the world they were trained in; of runs that are alike in label and seed the first."""
    from ..run import RunDir
    from ..run.report import load_runs

    found: dict[tuple[str, str], World] = {}
    for loaded in load_runs(paths):
        run = RunDir.open(loaded.path)
        system = find(run.system)
        config = read_config(system, (), run.config_path)
        world = config.test_set or str(getattr(config, "env", system.name))
        of = found.setdefault((system.name, world), World(system, config, {}))
        of.runs.setdefault(f"{loaded.label} s{config.seed}", run.path)
    return {world: of for (_, world), of in found.items()}


def sections(paths: Sequence[Path]) -> "list[Section]":
    """For each world what evaluations left and what its system shows, of at most six runs."""
    from ..loading import load_attribute
    from ..run import Section
    from ..run.page import figure

    found = []
    for world, (system, config, runs) in worlds(paths).items():
        some = dict(list(runs.items())[:MOST])
        found += load_attribute(system.summary)(config, some) if system.summary else []
        if shown := pictures_of(system, config, some):
            found.append(Section(f"What was learned: {world}", [figure(*picture) for picture in shown]))
    return found


def headline(paths: Sequence[Path]) -> list[str]:
    """The metrics by which the systems of these runs are compared."""
    return list(dict.fromkeys(m.name for world in worlds(paths).values() for m in world.system.headline))
