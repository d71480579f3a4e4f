"""Checkpoints of alexhernandezgarcia/gflownet, for `crossfade convert`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import checkpoint_torch


@dataclass(frozen=True)
class UpstreamFormat:
    """One of the two layouts in which its networks are stored."""

    layout: checkpoint_torch.Layout
    help: str

    def open(self, path: Path) -> checkpoint_torch.Upstream | None:
        return checkpoint_torch.open_upstream(path)

    def to_bundle(self, found: checkpoint_torch.Upstream, folder: Path) -> tuple[Path, dict[str, Any]]:
        facts = {**asdict(found.facts), "settings": " ".join(found.facts.words)}
        return checkpoint_torch.to_bundle(found, folder), facts

    def from_bundle(self, source: Path, out: Path) -> Path:
        return checkpoint_torch.from_bundle(source, out, self.layout)


FORMATS = {
    "upstream": UpstreamFormat("nested", "alexhernandezgarcia/gflownet"),
    "upstream_flat": UpstreamFormat("flat", "forks of it with the flattened trunk"),
}
