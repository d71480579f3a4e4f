"""The verb report."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from .common import Common, print_json


@dataclass(kw_only=True)
class Report(Common):
    """One HTML page on some runs: what was learned, results, learning curves, speed, settings.

    crossfade report runs/SYSTEM/*
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...")] = ()
    """Folders of runs; all under --runs-dir by default."""
    out: Path | None = None
    """The page; by default report.html under --runs-dir."""

    def run(self) -> int:
        from ..run import list_runs, report_runs
        from .pictures import headline, sections

        paths = self.paths or list_runs(self.runs_dir)
        out = self.out or self.runs_dir / "report.html"
        page = report_runs(paths, out, learned=sections(paths), headline=headline(paths))
        if self.json:
            return print_json({"report": str(page)})
        print(f"report: {page}")
        return 0
