"""The verb convert."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from ..errors import UsageError, nearest
from .common import Common, print_json

if TYPE_CHECKING:
    from ..checkpoint.own_format import OwnFormat


@dataclass(kw_only=True)
class Convert(Common):
    """Turn a checkpoint into another format. Nothing is ever unpickled.

    crossfade convert policy.pt --to orbax

    crossfade convert run.tar --entry model_state_dict --to safetensors

    crossfade convert runs/x/checkpoints --to torch --out policy.pt

    crossfade convert logs/published_run/final.ckpt --to bundle
    """

    checkpoint: Annotated[Positional[Path], arg(metavar="CKPT")]
    """A run, a bundle or folder of bundles, .pt/.pth, .safetensors, .npz, an orbax folder, or a format of a system's
    own; recognised by content."""
    to: Annotated[str, arg(metavar="FORMAT")] = "torch"
    """The format to write: torch, jax, orbax, npz, safetensors, bundle, or one of a system's own."""
    entry: Annotated[str | None, arg(metavar="NAME")] = None
    """The state dict to take from a torch file that holds several things, such as model_state_dict."""
    out: Path | None = None
    """Where to write it; by default beside the source."""

    def run(self) -> int:
        written, facts = self._convert()
        if self.json:
            return print_json({"written": str(written), **facts})
        print(written)
        for name, value in facts.items():
            print(f"{name:<18} {value}")
        return 0

    def _convert(self) -> tuple[Path, dict[str, Any]]:
        """Where the result is, and what is to be said about it."""
        from .. import checkpoint

        inside = self.checkpoint / "checkpoints"  # of a run
        source = inside if inside.is_dir() else self.checkpoint
        try:
            source.lstat()
        except FileNotFoundError:
            raise UsageError(f"expected a checkpoint or a run, got {str(source)!r}, where nothing is.") from None
        own = _own_formats()
        if self.entry is not None and self.to in own:
            raise UsageError(f"--entry is of a torch file, which becomes a bundle first: --to bundle, not {self.to}.")
        if self.to in own:
            suffix = getattr(own[self.to], "suffix", "ckpt")
            return own[self.to].from_bundle(source, self.out or source.with_name(f"{source.stem}.{suffix}")), {}
        if self.to not in checkpoint.FORMATS:
            known = (*checkpoint.FORMATS, *own)
            raise UsageError(f"--to: unknown format {self.to!r}.{nearest(self.to, known)} Known: {', '.join(known)}.")
        for format in own.values() if self.entry is None else ():
            if (found := format.open(source)) is None:
                continue
            if self.to != "bundle":
                raise UsageError(
                    f"{source}: a checkpoint of {format.help} becomes a bundle first: --to bundle, not --to {self.to}."
                )
            return format.to_bundle(found, self.out or source.with_name(f"{source.stem}.bundles"))
        return checkpoint.convert(source, self.to, self.out, self.entry), {}


def _own_formats() -> dict[str, "OwnFormat"]:
    """The checkpoint formats that systems bring along."""
    from ..loading import load_attribute
    from ..registry import systems

    found: dict[str, OwnFormat] = {}
    for system in systems().values():
        found |= load_attribute(system.formats) if system.formats else {}
    return found
