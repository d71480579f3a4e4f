"""The verb parity."""

from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from .common import Common, print_json, status


@dataclass(kw_only=True)
class Parity(Common):
    """Prove that the two sides of a system are the same. Exit code 1 when DIFFERENT.

    crossfade parity policy_value --level grad

    crossfade parity my_package.twins:my_twin --bisect
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM|MODULE:TWIN")]
    """A name from `crossfade list`, or your own Twin (or a function that makes one)."""
    level: Literal["all", "map", "forward", "loss", "grad", "update", "updates", "env", "rollout"] = "all"
    """Climb up to this level."""
    dtype: Literal["both", "float64", "float32"] = "both"
    """Precisions to compare in."""
    bisect: bool = False
    """On DIFFERENT: name the operation, both lines and the cause."""

    def run(self) -> int:
        from .. import parity
        from ..loading import load_attribute, running_theirs
        from ..registry import lookup, twins

        target = self.system if ":" in self.system else lookup("system", twins(), self.system).target
        twin = load_attribute(target, parity.Twin)
        with status(f"proving {twin.name}", self), running_theirs(f"proving {target}"):
            report = parity.check(twin, levels=self.level, dtype=self.dtype, bisect=self.bisect)
        page = report.save(self.runs_dir / "parity" / f"{twin.name}.html")
        if self.json:
            print_json(report.json())
        else:
            print(report.text())
            print(f"report: {page}")
        return report.exit_code
