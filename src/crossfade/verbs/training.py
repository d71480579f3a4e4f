"""Verbs that run systems: train, climb, report, bench."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ..errors import UsageError
from ..run.settings import MODES, Mode
from .common import Common, print_json


@dataclass(kw_only=True)
class Train(Common):
    """Train a system. `crossfade list gflownet` shows its settings.

    crossfade train gflownet env=grid env.length=16 mode=jax_full steps=5000 seed=0

    crossfade train --resume runs/gflownet/tb-grid-jax_full-s0-20260101-120000 mode=torch

    crossfade train trading env.phase=2 --weights runs/trading/ppo-es-jax_full-s0-20260101-120000
    """

    words: Annotated[Positional[tuple[str, ...]], arg(metavar="SYSTEM KEY=VALUE ...")] = ()
    """The system, then any settings."""
    preset: str | None = None
    """A named setting to start from."""
    config: Path | None = None
    """A YAML file of settings; words on the command line go before it, a preset behind."""
    resume: Path | None = None
    """Go on with this run from its last checkpoint, in another mode too."""
    weights: Path | None = None
    """Start from the parameters of this run or checkpoint, with a fresh optimiser. A trading run also takes over the
    statistics of its observations, and one of phase 2 grows from one of phase 1."""

    def run(self) -> int:
        from ..run import RunDir, trials
        from ..trainers.training import adopt, train

        if self.resume is not None and self.weights is not None:
            raise UsageError(
                "--resume goes on with everything, --weights starts anew from parameters: use one of them."
            )
        start, quiet = None, self.quiet or self.json
        if self.resume is not None:
            run = RunDir.open(self.resume, write=True)
            system, words = _resumed(run, self.words)
            config = _config(system, words, run.config_path)
        else:
            system, words = _system(self.words)
            config = _config(system, words, self.config, self.preset)
            if self.weights is not None:
                start, note = adopt(system, config, self.weights)
                if note and not quiet:
                    print(note)
            run = RunDir.create(self.runs_dir, system, config.parts, config.seed, config)
        with run:
            test_set = _test_set(system, config)
            trials.begin(run, config, weights=self.weights)
            result = train(system, config, run, resume=self.resume is not None, start=start, quiet=quiet)
            trials.judged(run, config, "result", result.get("eval/sharpe"), test_set)
        if self.json:
            return print_json({"run": str(run.path), **result})
        for name, value in result.items():
            print(f"{name:<18} {value:.6g}")
        print(f"run: {run.path}")
        return 0


@dataclass(kw_only=True)
class Climb(Common):
    """Every mode in turn: parity with the mode below, speed, learning; one table, one HTML report.

    crossfade climb gflownet steps=1000
    """

    words: Annotated[Positional[tuple[str, ...]], arg(metavar="SYSTEM KEY=VALUE ...")] = ()
    """The system, then any settings but the mode."""
    preset: str | None = None
    """A named setting to start from."""
    modes: tuple[Mode, ...] = ()
    """The rungs to climb, lowest first; all of them by default."""
    updates: int = 20
    """Float64 updates over which each mode is compared with the one below."""

    def run(self) -> int:
        from ..loading import load_attribute
        from ..parity import Verdict
        from ..registry import SYSTEMS
        from ..run import RunDir, trials
        from ..trainers.ladder import climb
        from ..trainers.ladder_report import write_page
        from .ladder import LadderTable

        system, words = _system(self.words)
        config = _config(system, words, preset=self.preset)
        modes: list[Mode] = [mode for mode in MODES if not self.modes or mode in self.modes]
        silent = self.quiet or self.json
        with LadderTable(silent) as table:
            rungs = climb(
                system, config, self.runs_dir, modes=modes, updates=self.updates, on_rung=table.add, quiet=silent
            )
        for rung in rungs:
            run, at = RunDir.open(rung.run), replace(config, mode=rung.mode)
            trials.begin(run, at)
            trials.judged(run, at, "result", rung.result.get("eval/sharpe"), _test_set(system, at))
        pictures = load_attribute(SYSTEMS[system].pictures)(config, {rung.mode: rung.run for rung in rungs})
        page = write_page(self.runs_dir / system / "climb.html", f"{system}: the ladder", rungs, pictures)
        different = any(rung.parity is not None and rung.parity.verdict is Verdict.DIFFERENT for rung in rungs)
        if self.json:
            print_json([rung.json() for rung in rungs])
        else:
            print(f"report: {page}")
        return int(different)


@dataclass(kw_only=True)
class Report(Common):
    """One HTML page on some runs: results, learning curves, speed, settings.

    crossfade report runs/gflownet/*
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...")] = ()
    """Folders of runs; all under --runs-dir by default."""
    out: Path | None = None
    """The page; by default report.html under --runs-dir."""

    def run(self) -> int:
        from ..run import list_runs, report_runs

        paths = self.paths or list_runs(self.runs_dir)
        page = report_runs(paths, self.out or self.runs_dir / "report.html", learned=_learned(paths))
        if self.json:
            return print_json({"report": str(page)})
        print(f"report: {page}")
        return 0


@dataclass(kw_only=True)
class Bench(Common):
    """Measure throughput, compile time apart, torch baselines beside.

    crossfade bench bridge --quick
    """

    system: Annotated[Positional[str], arg(metavar="SYSTEM")] = "bridge"
    """A name from `crossfade list`."""
    quick: bool = False
    """Fewer rounds and processes: a first look, not a figure to quote."""

    def run(self) -> int:
        from ..loading import load_attribute
        from ..registry import BENCHES, lookup

        return load_attribute(lookup("bench", BENCHES, self.system).target)(
            quick=self.quick, as_json=self.json, quiet=self.quiet
        )


def _test_set(system: str, config: Any) -> str:
    """What a run of this config is judged by, as the ledger of trials names it; nothing where all is known."""
    if system != "trading":
        return ""
    from ..systems.trading.judging.stage import test_set

    return test_set(config)


def _system(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    from ..registry import SYSTEMS, lookup

    if not words or "=" in words[0]:
        raise UsageError(f"expected a system first. Known: {', '.join(SYSTEMS)}.")
    lookup("system", SYSTEMS, words[0])
    return words[0], words[1:]


def _resumed(run: Any, words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    system = run.meta["system"]
    if words and "=" not in words[0]:
        if words[0] != system:
            raise UsageError(f"{run.path} is a run of {system}, not of {words[0]}.")
        words = words[1:]
    return system, words


def _learned(paths: Sequence[Path]) -> list[Any]:
    """What the runs' systems show of them: a section for each world, with at most six of its runs."""
    from ..loading import load_attribute
    from ..registry import SYSTEMS
    from ..run import RunDir, Section
    from ..run.page import figure

    worlds: dict[Any, tuple[str, Any, dict[str, Path]]] = {}
    for run in map(RunDir.open, paths):
        system = run.meta["system"]
        config = _config(system, (), run.config_path)
        title = f"{'-'.join(config.parts)} s{config.seed}"
        key = system, config.env, _test_set(system, config)
        worlds.setdefault(key, (system, config, {}))[2].setdefault(title, run.path)
    sections = []
    for system, config, runs in worlds.values():
        shown = load_attribute(SYSTEMS[system].pictures)(config, dict(list(runs.items())[:6]))
        if shown:
            world = _test_set(system, config) or config.env
            sections.append(Section(f"What was learned: {world}", [figure(*picture) for picture in shown]))
    return sections


def _config(system: str, words: tuple[str, ...], file: Path | None = None, preset: str | None = None) -> Any:
    from ..config import resolve
    from ..loading import load_attribute
    from ..presets import PRESETS
    from ..registry import SYSTEMS

    default = load_attribute(SYSTEMS[system].config)()
    return resolve(default, presets=PRESETS.get(system), preset=preset, file=file, words=words)
