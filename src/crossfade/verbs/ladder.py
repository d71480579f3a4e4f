"""The ladder on the terminal, rung by rung."""

from rich.console import Console
from rich.table import Table

from ..trainers.ladder import Rung
from ..trainers.ladder_report import head, row


class LadderTable:
    """Says when a rung has been climbed, and prints the whole table at the end."""

    def __init__(self, quiet: bool):
        self.console = Console(quiet=quiet)
        self.rungs: list[Rung] = []

    def add(self, rung: Rung) -> None:
        self.rungs.append(rung)
        verdict = "first rung" if rung.parity is None else f"{rung.parity.verdict} with the rung below"
        self.console.print(f"{rung.mode}: {verdict}, {rung.result['time/its']:.4g} it/s", highlight=False)

    def __enter__(self) -> "LadderTable":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            table = Table(*head(self.rungs), box=None, pad_edge=False, header_style="bold")
            for rung in self.rungs:
                table.add_row(*row(rung, self.rungs))
            self.console.print(table)
