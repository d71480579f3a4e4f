"""The verb bench."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from .common import Common


@dataclass(kw_only=True)
class Bench(Common):
    """Measure throughput, compile time apart, torch baselines beside.

    crossfade bench bridge --quick
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM")] = "bridge"
    """A name from `crossfade list`."""
    quick: bool = False
    """Fewer rounds and processes: a first look, not a figure to quote."""

    def run(self) -> int:
        from ..loading import load_attribute
        from ..registry import benches, lookup

        target = lookup("bench", benches(), self.system).target
        return load_attribute(target)(quick=self.quick, as_json=self.json, quiet=self.quiet)
