"""Reports: any sections on one self-contained page; and the standard one for a list of runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UsageError
from . import groups, page
from .files import write_text
from .metrics import Row, read_metrics
from .page import Cell, table
from .rundir import RunDir

SPEED = (
    "Updates per second of the median chunk, compile time left out: the first chunk is not counted. The line spans the "
    "middle half of chunks, over all runs of a label."
)


class Section(NamedTuple):
    """A heading and what stands under it: blocks made by `page.table`, `page.figure`, `page.paragraph`, `page.code`."""

    title: str
    blocks: Sequence[str]


class Run(NamedTuple):
    """What a report needs of a run."""

    path: Path
    name: str
    label: str
    config: dict[str, Any]
    meta: dict[str, Any]
    metrics: dict[str, np.ndarray]
    result: Row | None  # None while it is not finished


class Speed(NamedTuple):
    """Updates per second, compile time left out."""

    middle: float
    low: float
    high: float


def write_report(path: Path | str, title: str, sections: Iterable[Section], lead: str = "") -> Path:
    """Writes the page; returns its path."""
    return write_text(Path(path), page.page(title, lead, sections))


def report_runs(
    paths: Sequence[Path | str],
    out: Path | str,
    title: str = "Runs",
    baseline: str | None = None,
    learned: Iterable[Section] = (),
    headline: Sequence[str] = (),
) -> Path:
    """The standard report: what was learned, result table, learning curves, speed, settings, circumstances.

    Runs that differ only in their seed share a label and are drawn as mean and band. `baseline` is the label that
    speeds are compared with; `learned` are sections that the runs' systems add. Metrics other than those of the
    `headline` are folded away; without one all are shown.
    """
    runs = load_runs(paths)
    if not runs:
        raise UsageError("expected at least one run to report on, got none; `crossfade train` makes one.")
    keys = _curve_keys(runs)
    first = [key for key in headline if key in keys] or keys
    rest = [key for key in keys if key not in first]
    others = [page.details(section.title, section.blocks) for section in curve_sections(runs, rest)]
    sections = [
        *learned,
        Section("Results", [results(runs, first), *([page.details("all metrics", [results(runs)])] if rest else [])]),
        *curve_sections(runs, first),
        *speed_section(runs, baseline),
        *([Section("Other metrics", others)] if others else []),
        Section("Settings", [page.details("all settings", [settings(runs)])]),
        Section("Circumstances", [page.details("when, with what and on what", [circumstances(runs)])]),
    ]
    return write_report(out, title, sections, lead=", ".join(dict.fromkeys(run.label for run in runs)))


def load_run(path: Path | str) -> Run:
    run = RunDir.open(path)
    config, meta = run.settings, run.meta
    label = run.path.name.partition(f"-s{meta['seed']}-")[0]
    return Run(run.path, run.path.name, label, groups.flat(config), meta, read_metrics(run.metrics_path), run.result)


def load_runs(paths: Sequence[Path | str]) -> list[Run]:
    """Runs with labels that say in what their settings differ; those that differ in their seed alone share one, and
    stand together."""
    runs = [load_run(path) for path in paths]
    labels = groups.labels([run.label for run in runs], [run.config for run in runs])
    return [runs[place]._replace(label=labels[place]) for place in groups.together(labels)]


def results(runs: Sequence[Run], keys: Sequence[str] = ()) -> str:
    """One row for each run: how far it came, how long it took, the last value of these metrics, or of all."""
    keys = keys or list(dict.fromkeys(key for run in runs for key in _metric_keys(run)))
    head = ["run", "seed", "state", "steps", "seconds", *keys]
    rows = []
    for run in runs:
        state = Cell("done", "good") if run.result is not None else Cell("not finished", "fair")
        last = [_last(run, key) for key in ("step", "wall")]
        rows.append([run.label, run.meta["seed"], state, *last, *(_last(run, key) for key in keys)])
    return table(head, rows, "Metrics are the last ones logged.")


def curve_sections(runs: Sequence[Run], keys: Sequence[str]) -> list[Section]:
    """For each of these metrics its curve over steps, and folded away that over seconds."""
    from . import plots

    sections = []
    for key in keys:
        blocks = []
        for x, name in (("step", "steps"), ("wall", "seconds")):
            lines = [_curve(run, x, key) for run in runs if key in run.metrics]
            picture = plots.curves([line for line in lines if len(line.x)], xlabel=name, ylabel=key)
            blocks.append(page.figure(plots.to_svg(picture), f"{key} over {name}"))
        sections.append(Section(key, [blocks[0], page.details("over seconds", blocks[1:])]))
    return sections


def speed(run: Run) -> Speed | None:
    """As the run's result says it, the median chunk and the middle half of chunks; of one that has not ended, or was
    made by an earlier version, by the rows of its log but the first. The first chunk is never counted: it compiles."""
    result = run.result or {}
    if "time/its" in result:
        middle = result["time/its"]
        return Speed(middle, result.get("time/its_low", middle), result.get("time/its_high", middle))
    logged = run.metrics.get("time/sps", np.array([]))
    logged = logged[np.isfinite(logged)]
    if not len(logged):
        return None
    return Speed(*(float(np.quantile(logged[1:] if len(logged) > 1 else logged, q)) for q in (0.5, 0.25, 0.75)))


def speed_section(runs: Sequence[Run], baseline: str | None = None) -> list[Section]:
    """Updates per second of each label; of several runs of a label the median."""
    from . import plots

    speeds: dict[str, list[Speed]] = {}
    for run in runs:
        if (found := speed(run)) is not None:
            speeds.setdefault(run.label, []).append(found)
    if not speeds:
        return []
    middle = {label: float(np.median([one.middle for one in found])) for label, found in speeds.items()}
    spread = {label: (min(s.low for s in found), max(s.high for s in found)) for label, found in speeds.items()}
    picture = plots.bars(middle, xlabel="updates per second", baseline=baseline, spread=spread)
    return [Section("Speed", [page.figure(plots.to_svg(picture), SPEED)])]


def settings(runs: Sequence[Run]) -> str:
    """Every setting of every run; those in which runs differ are marked."""
    keys = dict.fromkeys(key for run in runs for key in run.config)
    rows = []
    for key in keys:
        values = [run.config.get(key) for run in runs]
        differs = any(value != values[0] for value in values)
        rows.append([key, *(Cell(_plain(value), "fair" if differs else "") for value in values)])
    return table(["setting", *(f"{run.label} s{run.meta['seed']}" for run in runs)], rows)


def circumstances(runs: Sequence[Run]) -> str:
    """When, with what and on what each run, and each resumption of it, was made."""
    head = ["run", "started", "resumed at", "command", "commit", "versions", "platform", "cores"]
    rows = []
    for run in runs:
        for session in run.meta["sessions"]:
            versions = ", ".join(f"{name} {version}" for name, version in session["versions"].items())
            commit, command = (session["git"] or "")[:12] or None, " ".join(session["argv"])
            row = [session["started"], session.get("resumed_at"), command, commit, versions, session["platform"]]
            rows.append([run.name, *row, session["cores"]])
    return table(head, rows)


def _curve_keys(runs: Sequence[Run]) -> list[str]:
    """Metrics that make a curve: standard errors and ideal values do not."""
    keys = dict.fromkeys(key for run in runs for key in _metric_keys(run))
    return [key for key in keys if not key.endswith(("_se", "_perfect"))]


def _metric_keys(run: Run) -> list[str]:
    counters = ("step", "env_steps", "updates", "wall")
    return [key for key in run.metrics if key not in counters and not key.startswith("time/")]


def _last(run: Run, key: str) -> float | int | None:
    known = run.metrics.get(key, np.array([]))
    known = known[~np.isnan(known)]
    return known[-1].item() if len(known) else None


def _curve(run: Run, x: str, key: str) -> Any:
    from .plots import Curve

    known = np.isfinite(run.metrics[key])
    return Curve(run.label, run.metrics[x][known].astype(np.float64), run.metrics[key][known])


def _plain(value: Any) -> str | None:
    return None if value is None else str(value)
