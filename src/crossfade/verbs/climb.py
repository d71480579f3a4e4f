"""The verb climb."""

from dataclasses import dataclass

from ..ranges import Count
from ..run.settings import MODES, Mode
from .common import Common, print_json, telling
from .configured import Words, read_config, read_system


@dataclass(kw_only=True)
class Climb(Common):
    """Every mode in turn: parity with the mode below, speed, learning; one table, one HTML report.

    crossfade climb SYSTEM steps=1000
    """

    words: Words = ()
    """The system, then any settings but the mode."""
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
