"""What a checkpoint format of a system's own must have, for `crossfade convert`."""

from pathlib import Path
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class OwnFormat(Protocol):
    """A format that others write for the same kind of system."""

    help: str
    """Whose format it is."""

    def open(self, path: Path) -> Any | None:
        """What a file of this format holds; None for any other file."""
        ...

    def to_bundle(self, found: Any, folder: Path) -> tuple[Path, dict[str, Any]]:
        """Writes what `open` found as a bundle; its path, and what there is to say about it, by name."""
        ...

    def from_bundle(self, source: Path, out: Path) -> Path:
        """Writes a bundle in this format; its path."""
        ...
