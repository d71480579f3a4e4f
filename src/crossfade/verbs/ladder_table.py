"""The ladder on the terminal, rung by rung."""

from rich.console import Console

from ..registry import System
from ..run.page import show
from ..trainers.ladder import Rung
from ..trainers.ladder_report import head, row, time_split


class LadderTable:
    """Says when a rung has been climbed, and prints the whole table at the end."""

    def __init__(self, system: System, quiet: bool):
        self.system = system
        self.console = Console(quiet=quiet, soft_wrap=True, highlight=False)
        self.rungs: list[Rung] = []

    def add(self, rung: Rung) -> None:
        self.rungs.append(rung)
        verdict = "first rung" if rung.parity is None else f"{rung.parity.verdict} with the rung below"
        self.console.print(f"{rung.mode}: {verdict}, {show(rung.result['time/its'])} updates/s")

    def __enter__(self) -> "LadderTable":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            return
        lines = [head(self.system, self.rungs), *(row(rung, self.system, self.rungs) for rung in self.rungs)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
        self.console.print()
        for number, line in enumerate(lines):
            text = "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            self.console.print(text, style="bold" if number == 0 else None)
        self.console.print("\nwhere the time goes", style="bold")
        for rung in self.rungs:
            self.console.print(f"{rung.mode:<{widths[0]}}  {time_split(rung)}")
            for note in rung.notes.values():
                self.console.print(f"{'':<{widths[0]}}  {note}")
