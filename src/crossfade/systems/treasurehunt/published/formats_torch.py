"""Checkpoints of social-ai-uoft/sorrel, for `crossfade convert`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import checkpoints_torch


@dataclass(frozen=True)
class SorrelFormat:
    """A file for each agent: a folder of them, or one."""

    help: str

    def open(self, path: Path) -> checkpoints_torch.Published | None:
        return checkpoints_torch.open_agents(path)

    def to_bundle(self, found: checkpoints_torch.Published, folder: Path) -> tuple[Path, dict[str, Any]]:
        facts = {**asdict(found.facts), "settings": " ".join(found.facts.words)}
        return checkpoints_torch.to_bundle(found, folder), facts

    def from_bundle(self, source: Path, out: Path) -> Path:
        return checkpoints_torch.from_bundle(source, out)


FORMATS = {"sorrel": SorrelFormat("social-ai-uoft/sorrel, one file per agent")}
