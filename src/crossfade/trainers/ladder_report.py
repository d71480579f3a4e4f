"""What a climb found, as a table for the terminal and as one HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from ..parity.verdict import Comparison
from ..registry import MODES
from ..run import Section, write_report
from ..run.page import Cell, figure, paragraph, table
from ..run.report import circumstances, curve_sections, load_run, settings, speed_section
from .ladder import Rung

PARTS = ("sample", "convert", "gradient", "sync", "all")
TONES: dict[str, Literal["good", "bad"]] = {"EQUAL": "good", "ROUNDING": "good", "DIFFERENT": "bad"}


def head(rungs: Sequence[Rung]) -> list[str]:
    """Column names: the ladder's own, then what the system measures."""
    return ["mode", "parity", "largest difference", "it/s", "x torch", "x torch_pure", "compile s", "time goes to"] + [
        name.removeprefix("eval/") for name in _measures(rungs)
    ]


def row(rung: Rung, rungs: Sequence[Rung]) -> list[str]:
    """One mode in words and figures."""
    rate = {r.mode: r.result["time/its"] for r in rungs}
    times = lambda base: f"{rate[rung.mode] / rate[base]:.3g}" if base in rate else ""
    split = [
        f"{part} {rung.result[f'time/{part}']:.0%}" for part in PARTS if rung.result.get(f"time/{part}", 0) >= 0.005
    ]
    return [
        rung.mode,
        "" if rung.parity is None else str(rung.parity.verdict),
        _largest(rung.parity),
        f"{rate[rung.mode]:.4g}",
        times("torch"),
        times("torch_pure"),
        f"{rung.result['time/compile']:.1f}",
        ", ".join(split),
        *(f"{rung.result[name]:.4g}" for name in _measures(rungs)),
    ]


def write_page(path: Path, title: str, rungs: Sequence[Rung], pictures: Sequence[tuple[str, str]] = ()) -> Path:
    """The ladder, its pictures, and the runs behind it; `pictures` are the system's own, SVG and caption."""
    runs = [load_run(rung.run) for rung in rungs]
    ladder = [[rung.mode, MODES[rung.mode], *map(_toned, row(rung, rungs)[1:])] for rung in rungs]
    shown = {"train/loss", "eval/tv"}
    return write_report(
        path,
        title,
        [
            Section("The ladder", [table(["mode", "what runs where", *head(rungs)[1:]], ladder, NOTE)]),
            *([Section("What was learned", [figure(svg, caption) for svg, caption in pictures])] if pictures else []),
            *speed_section(runs, next((run.label for run in runs if "torch_pure" in run.label), None)),
            *(section for section in curve_sections(runs) if section.title in shown),
            Section("Settings", [settings(runs)]),
            Section("Circumstances", [circumstances(runs), paragraph(THREADS)]),
        ],
    )


NOTE = (
    "Parity is with the mode above it in this table: losses, parameters and optimiser moments after the same float64 "
    "updates from one seed. Speeds are of the median chunk; compile time is what the first chunk took beyond it."
)
THREADS = "Each framework runs with its own default number of threads on the cores stated above."


def _measures(rungs: Sequence[Rung]) -> list[str]:
    return [name for name in rungs[0].result if name in ("eval/tv", "eval/log_z_error")]


def _largest(parity: Comparison | None) -> str:
    if parity is None:
        return ""
    return f"{parity.worst.size:.1e} {parity.worst.leaf}" if parity.worst.size else "0"


def _toned(text: str) -> Any:
    return Cell(text, TONES[text]) if text in TONES else text
