"""The verb climb."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..ranges import Count
from ..run.settings import MODES, Mode
from .common import Common, print_json, status, telling
from .configured import Words, read_config, read_system

if TYPE_CHECKING:
    from ..parity import Twin


@dataclass(kw_only=True)
class Climb(Common):
    """Every mode in turn: parity with the mode below, speed, learning; one table, one HTML report.

    crossfade climb SYSTEM steps=1000

    crossfade climb my_package.twins:my_twin
    """

    words: Words = ()
    """The system, then any settings but the mode; or your own Twin: it is proved, and then timed in torch, by the
    bridge and in JAX."""
    preset: str | None = None
    """A named setting to start from."""
    modes: tuple[Mode, ...] = ()
    """The rungs to climb, lowest first; all of them by default."""
    updates: Count = 20
    """Float64 updates over which each mode is compared with the one below."""

    def run(self) -> int:
        from ..parity import Verdict
        from ..trainers.ladder import climb
        from ..trainers.ladder_report import write_page
        from .ladder_table import LadderTable
        from .pictures import pictures_of

        if (twin := self._own()) is not None:
            return self._climb_own(twin)
        system, words = read_system(self.words)
        config = read_config(system, words, preset=self.preset)
        modes: list[Mode] = [mode for mode in MODES if not self.modes or mode in self.modes]
        silent = self.quiet or self.json
        table = LadderTable(system, silent)
        with telling("climbed", lambda: {rung.mode: rung.run for rung in table.rungs}), table:
            rungs = climb(
                system, config, self.runs_dir, modes=modes, updates=self.updates, on_rung=table.add, quiet=silent
            )
        pictures = pictures_of(system, config, {rung.mode: rung.run for rung in rungs})
        page = write_page(self.runs_dir / system.name / "climb.html", system, rungs, pictures)
        different = any(rung.parity is not None and rung.parity.verdict is Verdict.DIFFERENT for rung in rungs)
        if self.json:
            print_json([rung.json() for rung in rungs])
        else:
            print(f"report: {page}")
        return int(different)

    def _own(self) -> "Twin | None":
        """The user's twin, if that is what the words name."""
        from ..loading import load_attribute
        from ..parity import Twin
        from ..registry import System

        if len(self.words) != 1 or ":" not in self.words[0]:
            return None
        named = load_attribute(self.words[0], (System, Twin, tuple))
        if isinstance(named, tuple):
            raise UsageError(
                f"{self.words[0]!r}: expected a Twin, whose JAX half is proved and timed; got a tuple. Torch code "
                f"alone is timed by `crossfade bench {self.words[0]}`."
            )
        return named if isinstance(named, Twin) else None

    def _climb_own(self, twin: "Twin") -> int:
        """The proof, and if it holds, one step of each kind in time."""
        from .. import parity
        from ..loading import load_attribute, running_theirs

        with status(f"proving {twin.name}", self), running_theirs(f"proving {self.words[0]}"):
            report = parity.check(twin, steps=(1, self.updates))
        page = report.save(self.runs_dir / "parity" / f"{twin.name}.html")
        if not self.json:
            print(report.text())
            print(f"report: {page}")
        if report.exit_code:
            return print_json({"parity": report.json()}) or report.exit_code if self.json else report.exit_code
        own = load_attribute("crossfade.bench.own:measured")(
            self.words[0], quick=True, progress=not (self.quiet or self.json)
        )
        if self.json:
            return print_json({"parity": report.json(), "bench": own})
        load_attribute("crossfade.bench.bridge:show")(own)
        return 0
