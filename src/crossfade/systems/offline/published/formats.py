"""Parameter trees of chongyi-zheng/infom, for `crossfade convert`."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import trees


@dataclass(frozen=True)
class InFOMFormat:
    """A flat tree of flax names, as .npz or safetensors."""

    help: str

    def open(self, path: Path) -> trees.Published | None:
        return trees.open_tree(path)

    def to_bundle(self, found: trees.Published, folder: Path) -> tuple[Path, dict[str, Any]]:
        return trees.to_bundle(found, folder), asdict(found.facts)

    def from_bundle(self, source: Path, out: Path) -> Path:
        return trees.from_bundle(source, out)


FORMATS = {"infom": InFOMFormat("chongyi-zheng/infom, its trees written flat")}
