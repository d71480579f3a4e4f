"""The verb bench."""

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from .common import Common


@dataclass(kw_only=True)
class Bench(Common):
    """Measure throughput, compile time apart, torch baselines beside.

    crossfade bench bridge --quick

    crossfade bench my_package.twins:my_twin
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM|MODULE:ATTR")] = "bridge"
    """A name from `crossfade list`, or your own Twin, or a function that gives (loss, module, optimizer, batch)."""
    quick: bool = False
    """Fewer rounds and processes: a first look, not a figure to quote."""
    only: Annotated[str, arg(metavar="TEXT")] = ""
    """Only settings whose name contains this text, upper or lower case."""

    def run(self) -> int:
        from ..errors import UsageError
        from ..loading import load_attribute
        from ..registry import benches, lookup

        if ":" in self.system:
            if self.only:
                raise UsageError("`--only` chooses among settings of a bench that ships; your code is one setting.")
            load_attribute(self.system)  # wrong names are told before any process starts
            own = load_attribute("crossfade.bench.own:main")
            return own(self.system, quick=self.quick, as_json=self.json, quiet=self.quiet)
        target = lookup("bench", benches(), self.system).target
        return load_attribute(target)(quick=self.quick, as_json=self.json, quiet=self.quiet, only=self.only)
