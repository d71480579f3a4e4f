"""Checkpoints of alexhernandezgarcia/gflownet, for `crossfade convert`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...algos.gflownet import upstream


@dataclass(frozen=True)
class UpstreamFormat:
    """One of the two layouts in which its networks are stored."""

    layout: upstream.Layout
    help: str

    def open(self, path: Path) -> upstream.Upstream | None:
        return upstream.open_upstream(path)

    def to_bundle(self, found: upstream.Upstream, folder: Path) -> tuple[Path, dict[str, Any]]:
        facts = {**asdict(found.facts), "settings": " ".join(found.facts.words)}
        return upstream.to_bundle(found, folder), facts

    def from_bundle(self, source: Path, out: Path) -> Path:
        return upstream.from_bundle(source, out, self.layout)


FORMATS = {
    "upstream": UpstreamFormat("nested", "alexhernandezgarcia/gflownet"),
    "upstream_flat": UpstreamFormat("flat", "forks of it with the flattened trunk"),
}
