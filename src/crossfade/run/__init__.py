"""Everything around a training loop that is not training: the run's folder, its log, its progress, its pictures."""

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from . import page as page, plots as plots, trials as trials
    from .log import Log as Log
    from .loop import run_chunks as run_chunks
    from .metrics import read_metrics as read_metrics
    from .progress import Progress as Progress
    from .report import Section as Section, report_runs as report_runs, write_report as write_report
    from .rundir import RunDir as RunDir, list_runs as list_runs
    from .stopping import StopOnSignal as StopOnSignal

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "Log": "log",
        "Progress": "progress",
        "RunDir": "rundir",
        "Section": "report",
        "StopOnSignal": "stopping",
        "list_runs": "rundir",
        "read_metrics": "metrics",
        "report_runs": "report",
        "run_chunks": "loop",
        "write_report": "report",
    },
)
