"""Worlds that a user names, examined by the system that knows their kind."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Examined:
    """What a system says of a world that a user named."""

    lines: list[str]
    """What it is, for the terminal."""
    problems: list[str]
    """Every promise it breaks, in words."""
    facts: dict[str, Any]
    """The same for JSON."""

    def text(self) -> str:
        """For the terminal."""
        broken = [f"  BROKEN  {problem}" for problem in self.problems]
        return "\n".join([*self.lines, *(broken or ["  well: both twins keep the protocol, and they are equal"])])

    def json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**self.facts, "problems": self.problems}


def examine_worlds(targets: tuple[str, ...]) -> tuple[list[Examined], tuple[str, ...]]:
    """What the systems find in those of the targets that are worlds, and all other targets, which are models."""
    from ..loading import load_attribute
    from ..registry import systems

    examiners = [load_attribute(system.examine) for system in systems().values() if system.examine]
    found, models = [], []
    for target in targets:
        examined = next((seen for examine in examiners if (seen := examine(target)) is not None), None)
        if examined is None:
            models.append(target)
        else:
            found.append(examined)
    return found, tuple(models)
