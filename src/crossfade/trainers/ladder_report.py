"""What a climb found, as a table for the terminal and as one HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ..registry import MODES, Measure, System
from ..run import Section, write_report
from ..run.page import Cell, figure, paragraph, show, table
from ..run.report import circumstances, curve_sections, load_run, settings, speed_section
from ..verdict import Comparison
from .ladder import Rung

PARTS = ("sample", "convert", "gradient", "sync", "all")
TONES: dict[str, Literal["good", "bad"]] = {"EQUAL": "good", "ROUNDING": "good", "DIFFERENT": "bad"}


def head(system: System, rungs: Sequence[Rung]) -> list[str]:
    """Column names: the ladder's own, then the system's headline figures."""
    own = ["mode", "parity", "difference", "updates/s", "x torch", "x pure", "compile s"]
    return own + [measure.label for measure in _measures(system, rungs)]


def row(rung: Rung, system: System, rungs: Sequence[Rung]) -> list[str]:
    """One mode in figures."""
    rate = {r.mode: r.result["time/its"] for r in rungs}
    times = lambda base: f"{rate[rung.mode] / rate[base]:.3g}" if base in rate else ""
    return [
        rung.mode,
        "" if rung.parity is None else str(rung.parity.verdict),
        "" if rung.parity is None else f"{rung.parity.worst.size:.1e}",
        show(rate[rung.mode]),
        times("torch"),
        times("torch_pure"),
        f"{rung.result['time/compile']:.1f}",
        *(f"{rung.result[measure.name]:.4g}" for measure in _measures(system, rungs)),
    ]


def time_split(rung: Rung) -> str:
    """The shares of an iteration."""
    share = {part: rung.result.get(f"time/{part}", 0.0) for part in PARTS}
    return ", ".join(f"{part} {value:.0%}" for part, value in share.items() if value >= 0.005)


def write_page(path: Path, system: System, rungs: Sequence[Rung], pictures: Sequence[tuple[str, str]] = ()) -> Path:
    """The ladder, its pictures, and the runs behind it; `pictures` are the system's own, SVG and caption."""
    runs = [load_run(rung.run) for rung in rungs]
    ladder = [list(map(_toned, row(rung, system, rungs))) for rung in rungs]
    places = [[rung.mode, what_runs(rung), time_split(rung), _worst(rung.parity)] for rung in rungs]
    shown = [
        m.name for m in system.headline if any(m.name in run.metrics for run in runs) and not m.name.endswith("_se")
    ]
    return write_report(
        path,
        f"{system.name}: the ladder",
        [
            Section("The ladder", [table(head(system, rungs), ladder, NOTE), table(PLACES, places)]),
            *([Section("What was learned", [figure(svg, caption) for svg, caption in pictures])] if pictures else []),
            *speed_section(runs, next((run.label for run in runs if "torch_pure" in run.label), None)),
            *curve_sections(runs, shown),
            Section("Settings", [settings(runs)]),
            Section("Circumstances", [circumstances(runs), paragraph(THREADS)]),
        ],
    )


PLACES = ["mode", "what runs where", "where the time goes", "largest difference in"]
NOTE = (
    "Parity is with the mode above it in this table: losses, parameters and optimiser moments after the same float64 "
    "updates from one seed. Speeds are updates per second of the median chunk, compile time left out: that is what the "
    "first chunk took beyond it."
)
THREADS = "Each framework runs with its own default number of threads on the cores stated above."


def what_runs(rung: Rung) -> str:
    """What runs where, as it really did."""
    return rung.notes.get("mode", MODES[rung.mode])


def _measures(system: System, rungs: Sequence[Rung]) -> list[Measure]:
    return [measure for measure in system.headline if measure.name in rungs[0].result]


def _worst(parity: Comparison | None) -> str:
    return parity.worst.leaf if parity is not None and parity.worst.size else ""


def _toned(text: str) -> Any:
    return Cell(text, TONES[text]) if text in TONES else text
