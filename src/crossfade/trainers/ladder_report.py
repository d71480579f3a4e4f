"""What a climb found, as a table for the terminal and as one HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ..registry import MODES
from ..run import Section, write_report
from ..run.page import Cell, figure, paragraph, table
from ..run.report import circumstances, curve_sections, load_run, settings, speed_section
from ..verdict import Comparison
from .ladder import Rung

MEASURES = (
    "eval/tv",
    "eval/gap",
    "eval/log_z_error",
    "eval/daily",
    "eval/daily_se",
    "eval/random",
    "eval/long",
    "eval/short",
)
PARTS = ("sample", "convert", "gradient", "sync", "all")
TONES: dict[str, Literal["good", "bad"]] = {"EQUAL": "good", "ROUNDING": "good", "DIFFERENT": "bad"}


def head(rungs: Sequence[Rung]) -> list[str]:
    """Column names: the ladder's own, then what the system measures."""
    return ["mode", "parity", "difference", "it/s", "x torch", "x pure", "compile s"] + [
        name.removeprefix("eval/") for name in _measures(rungs)
    ]


def row(rung: Rung, rungs: Sequence[Rung]) -> list[str]:
    """One mode in figures."""
    rate = {r.mode: r.result["time/its"] for r in rungs}
    times = lambda base: f"{rate[rung.mode] / rate[base]:.3g}" if base in rate else ""
    return [
        rung.mode,
        "" if rung.parity is None else str(rung.parity.verdict),
        "" if rung.parity is None else f"{rung.parity.worst.size:.1e}",
        f"{rate[rung.mode]:.4g}",
        times("torch"),
        times("torch_pure"),
        f"{rung.result['time/compile']:.1f}",
        *(f"{rung.result[name]:.4g}" for name in _measures(rungs)),
    ]


def time_split(rung: Rung) -> str:
    """The shares of an iteration."""
    share = {part: rung.result.get(f"time/{part}", 0.0) for part in PARTS}
    return ", ".join(f"{part} {value:.0%}" for part, value in share.items() if value >= 0.005)


def write_page(path: Path, title: str, rungs: Sequence[Rung], pictures: Sequence[tuple[str, str]] = ()) -> Path:
    """The ladder, its pictures, and the runs behind it; `pictures` are the system's own, SVG and caption."""
    runs = [load_run(rung.run) for rung in rungs]
    ladder = [list(map(_toned, row(rung, rungs))) for rung in rungs]
    places = [[rung.mode, MODES[rung.mode], time_split(rung), _worst(rung.parity)] for rung in rungs]
    shown = {"train/loss", *MEASURES} - {"eval/log_z_error", "eval/daily_se"}
    return write_report(
        path,
        title,
        [
            Section("The ladder", [table(head(rungs), ladder, NOTE), table(PLACES, places)]),
            *([Section("What was learned", [figure(svg, caption) for svg, caption in pictures])] if pictures else []),
            *speed_section(runs, next((run.label for run in runs if "torch_pure" in run.label), None)),
            *(section for section in curve_sections(runs) if section.title in shown),
            Section("Settings", [settings(runs)]),
            Section("Circumstances", [circumstances(runs), paragraph(THREADS)]),
        ],
    )


PLACES = ["mode", "what runs where", "where the time goes", "largest difference in"]
NOTE = (
    "Parity is with the mode above it in this table: losses, parameters and optimiser moments after the same float64 "
    "updates from one seed. Speeds are of the median chunk; compile time is what the first chunk took beyond it."
)
THREADS = "Each framework runs with its own default number of threads on the cores stated above."


def _measures(rungs: Sequence[Rung]) -> list[str]:
    return [name for name in rungs[0].result if name in MEASURES]


def _worst(parity: Comparison | None) -> str:
    return parity.worst.leaf if parity is not None and parity.worst.size else ""


def _toned(text: str) -> Any:
    return Cell(text, TONES[text]) if text in TONES else text
