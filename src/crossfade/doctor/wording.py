"""What was found of a pair of models, in words: for the terminal, as JSON, as a page."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..bridge import Mapping
    from ..parity import Report


@dataclass(frozen=True)
class Failure:
    """What stands for the mapping and for the report of two models that could not be matched, or not even made."""

    name: str
    error: str
    verdict: str = "FAILED"  # or DIFFERENT, where both models were run and `match` refused them
    exit_code: int = 1

    def explain(self, notes: bool = True) -> str:
        """Which models failed."""
        return f"{self.name}: {self.verdict}"

    def text(self) -> str:
        """Why."""
        return self.error

    def json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"name": self.name, "verdict": self.verdict, "error": self.error}


def page(reports: "list[tuple[Mapping | Failure, Report | Failure]]") -> str:
    """All pairs as one HTML page, the conclusions first."""
    from ..parity.html import several

    parts = [
        (conclusion(mapping, report), str(report.json()["verdict"]), whole, text)
        for mapping, report in reports
        for whole, text in ((None, report.text()) if isinstance(report, Failure) else (report, mapping.explain(False)),)
    ]
    return several("crossfade doctor", parts)


def conclusion(mapping: "Mapping | Failure", report: "Report | Failure") -> str:
    """What was found of a pair, and what was not looked at, in a sentence or two."""
    if isinstance(mapping, Failure) or isinstance(report, Failure):
        return f"{mapping.explain(notes=False)}: {report.text().splitlines()[0]}"
    start = f"{report.name}: {report.verdict}"
    if report.first is not None:
        found = report.first.divergence
        return f"{start}. {report.first if found is None else found.conclusion}"
    wide = [row.float64.size for row in report.rows if row.level == "forward" and row.float64 is not None]
    same = [f"{start}. The same forward pass, {max(wide):.1e} apart in float64."] if wide else []
    same += [] if wide else [f"{start}. The same forward pass in float32, which proves less; the notes say why."]
    if mapping.unproved:
        same.append(f"Not proved, for the outputs do not depend on them here: {', '.join(mapping.unproved)}.")
    return " ".join(same)


def details(mapping: "Mapping | Failure", report: "Report | Failure") -> str:
    """All that was found of a pair; nothing where the conclusion has said it all."""
    if isinstance(report, Failure):
        return "\n\n".join(["", report.explain(), report.text()]) if "\n" in report.text() else ""
    return "\n\n".join(["", mapping.explain(notes=False), report.text()])
