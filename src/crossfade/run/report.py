"""Reports: any sections on one self-contained page; and the standard one for a list of runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import UsageError
from . import page
from .files import write_text
from .metrics import read_metrics
from .page import Cell, table
from .rundir import RunDir


class Section(NamedTuple):
    """A heading and what stands under it: blocks made by `page.table`, `page.figure`, `page.paragraph`, `page.code`."""

    title: str
    blocks: Sequence[str]


class Run(NamedTuple):
    """What a report needs of a run."""

    name: str
    label: str
    config: dict[str, Any]
    meta: dict[str, Any]
    metrics: dict[str, np.ndarray]
    done: bool


def write_report(path: Path | str, title: str, sections: Iterable[Section], lead: str = "") -> Path:
    """Writes the page; returns its path."""
    return write_text(Path(path), page.page(title, lead, sections))


def report_runs(
    paths: Sequence[Path | str],
    out: Path | str,
    title: str = "Runs",
    baseline: str | None = None,
    learned: Iterable[Section] = (),
) -> Path:
    """The standard report: result table, learning curves over steps and seconds, speed, settings, circumstances.

    Runs that differ only in their seed share a label and are drawn as mean and band. `baseline` is the label that
    speeds are compared with; `learned` are sections that the runs' systems add.
    """
    runs = [load_run(path) for path in paths]
    if not runs:
        raise UsageError("expected at least one run to report on, got none; `crossfade train` makes one.")
    sections = [
        Section("Results", [results(runs)]),
        *learned,
        *curve_sections(runs),
        *speed_section(runs, baseline),
        Section("Settings", [settings(runs)]),
        Section("Circumstances", [circumstances(runs)]),
    ]
    return write_report(out, title, sections, lead=", ".join(dict.fromkeys(run.label for run in runs)))


def load_run(path: Path | str) -> Run:
    run = RunDir.open(path)
    config, meta = run.settings, run.meta
    label = run.path.name.partition(f"-s{meta['seed']}-")[0]
    return Run(run.path.name, label, _flat(config), meta, read_metrics(run.metrics_path), run.result is not None)


def results(runs: Sequence[Run]) -> str:
    """One row for each run: how far it came, how long it took, the last value of every metric."""
    keys = list(dict.fromkeys(key for run in runs for key in _metric_keys(run)))
    head = ["run", "seed", "state", "steps", "seconds", *keys]
    rows = []
    for run in runs:
        state = Cell("done", "good") if run.done else Cell("not finished", "fair")
        last = [_last(run, key) for key in ("step", "wall")]
        rows.append([run.label, run.meta["seed"], state, *last, *(_last(run, key) for key in keys)])
    return table(head, rows, "Metrics are the last ones logged.")


def curve_sections(runs: Sequence[Run]) -> list[Section]:
    """For every metric, standard errors and ideal values excepted, its curve over steps and over seconds."""
    from . import plots

    sections = []
    keys = dict.fromkeys(key for run in runs for key in _metric_keys(run))
    for key in (key for key in keys if not key.endswith(("_se", "_perfect"))):
        blocks = []
        for x, name in (("step", "steps"), ("wall", "seconds")):
            lines = [_curve(run, x, key) for run in runs if key in run.metrics]
            picture = plots.curves([line for line in lines if len(line.x)], xlabel=name, ylabel=key)
            blocks.append(page.figure(plots.to_svg(picture), f"{key} over {name}"))
        sections.append(Section(key, blocks))
    return sections


def speed_section(runs: Sequence[Run], baseline: str | None = None) -> list[Section]:
    """Steps per second of each label: median over the logged rows, and the middle half of them."""
    from . import plots

    rates: dict[str, np.ndarray] = {}
    for run in runs:
        known = run.metrics.get("time/sps", np.array([]))
        rates[run.label] = np.concatenate([rates.get(run.label, np.array([])), known[np.isfinite(known)]])
    rates = {label: values for label, values in rates.items() if len(values)}
    if not rates:
        return []
    middle = {label: float(np.median(values)) for label, values in rates.items()}
    spread = {label: (float(np.quantile(v, 0.25)), float(np.quantile(v, 0.75))) for label, v in rates.items()}
    picture = plots.bars(middle, xlabel="steps per second", baseline=baseline, spread=spread)
    caption = "Median over logged rows; the line spans the middle half. The first row includes compilation."
    return [Section("Speed", [page.figure(plots.to_svg(picture), caption)])]


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


def _flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _plain(value: Any) -> str | None:
    return None if value is None else str(value)
