"""Verbs that run systems: train, climb, eval, report, bench."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
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
class Eval(Common):
    """Evaluate a run's last checkpoint: a GFlowNet exactly where its world can be listed, by bounds and samples
    everywhere; a trader on the days held out, with intervals, baselines and other fill rules.

    crossfade eval runs/gflownet/tb-grid-jax_full-s0-20260101-120000 --samples 100000

    crossfade eval runs/trading/ppo-es-jax_full-s0-20260101-120000 --firms my_firm.yaml
    """

    path: Annotated[Positional[Path], arg(metavar="RUN")]
    """The folder of a run."""
    samples: int = 10_000
    """Of a GFlowNet: objects to sample from the policy, and as many from the target."""
    backward_samples: int = 10
    """Of a GFlowNet: backward trajectories by which the probability of one object is estimated."""
    seed: int | None = None
    """Of a GFlowNet: seed of the samples; by default the run's, by a stream that training does not use."""
    resamples: int = 2000
    """Of a trader: repeats of the bootstrap, and accounts that try a firm's evaluation."""
    block: float | None = None
    """Of a trader: mean length of the bootstrap's blocks in days; by default the cube root of the number of days."""
    checkpoints: bool = False
    """Of a trader: judge every checkpoint that was kept, in one compiled call in the modes of JAX."""
    firms: tuple[Path, ...] = ()
    """Of a trader: YAML files of prop-firm rules, beside those that come along."""

    def run(self) -> int:
        from .. import checkpoint
        from ..run import RunDir
        from ..run.files import write_array, write_json, write_text
        from ..trainers.trainer import Snapshot
        from ..trainers.training import make_trainer, precision

        run = RunDir.open(self.path)
        system = run.meta["system"]
        config, effort = _config(system, (), run.config_path), self._effort(system)
        bundle = checkpoint.load(run.checkpoints, side="numpy")
        with precision(config):
            trainer = make_trainer(
                system, config, Snapshot(bundle.params, bundle.optimizer, bundle.replay["buffer"]), bundle.step
            )
            found = trainer.evaluate(effort)
            curve = self._curve(run, config) if self.checkpoints and system == "trading" else []
        for name, array in found.arrays.items():
            write_array(run.eval / f"{name}.npy", array)
        study = self._study(run, config, found, curve) if system == "trading" else None
        for name, text in (found.files if study else {}).items():
            write_text(run.eval / name, text)
        asked = {**asdict(effort), "test_set": found.test_set}
        written = finite({"step": bundle.step, **asked, **found.metrics, **({"study": study} if study else {})})
        write_json(run.eval / f"{bundle.step:010d}.json", written)
        if self.json:
            return print_json(written)
        if study:
            print("\n".join(_sheet(f"step {bundle.step}, {found.test_set}", study)))
            return 0
        print(f"step {bundle.step}, {self.samples} samples")
        print("\n".join(metric_lines(found.metrics)))
        if found.test_set:
            print(f"probabilities: of {found.test_set}, {self.backward_samples} backward trajectories each")
        return 0

    def _effort(self, system: str) -> Any:
        if system == "trading":
            from ..algos.trading import firms, stage

            return stage.Effort(self.resamples, self.block, firms.load(*self.firms))
        from ..algos.gflownet.evaluation import Effort

        return Effort(self.samples, self.backward_samples, self.seed)

    def _curve(self, run: Any, config: Any) -> list[dict[str, float]]:
        """A few figures of every checkpoint but the last, which is studied."""
        from .. import checkpoint
        from ..algos.trading.stage import Stage
        from ..loading import load_attribute

        bundles = [checkpoint.load(path, side="numpy") for path in checkpoint.list_bundles(run.checkpoints)[:-1]]
        side, stage = "jax" if config.mode.startswith("jax") else "torch", Stage(config)
        records = load_attribute(f"crossfade.algos.trading.checkpoints_{side}:records")
        parameters, buffers = [b.params for b in bundles], [b.replay["buffer"] for b in bundles]
        found = records(config, stage, parameters, buffers) if bundles else []
        return [{"step": b.step, **stage.brief(record)} for b, record in zip(bundles, found, strict=True)]

    def _study(self, run: Any, config: Any, found: Any, curve: list[dict[str, float]]) -> dict[str, Any]:
        """With what the ledger knows; these looks at the test set are written down first, and count."""
        import numpy as np

        from ..algos.trading.study import selection
        from ..run import trials

        trials.judged(run, config, "eval", found.metrics["eval/sharpe"], found.test_set)
        for row in curve:
            trials.judged(run, config, "eval", row["sharpe"], found.test_set, int(row["step"]))
        tried = trials.read(run.path.parent.parent, run.meta["system"])
        judged = [run.path.parent / name / "eval" / "daily.npy" for name in tried.runs[found.test_set].values()]
        dailies = [np.load(path, allow_pickle=False) for path in dict.fromkeys(judged) if path.exists()]
        picked = selection(found.study["moments"], tried.trials, list(tried.scores.values()), dailies)
        chosen = {**picked, "opened": tried.opened[found.test_set]}
        return {**found.study, **({"checkpoints": curve} if curve else {}), "selection": chosen}


def _sheet(title: str, study: dict[str, Any]) -> list[str]:
    from ..algos.trading import tearsheet

    about = f"{study['days']} days from {study['first_day']} to {study['last_day']}"
    tables = [line for table in tearsheet.tables(study) for line in ("", *tearsheet.lines(table))]
    return [f"{title}; {about}", *tables, "", tearsheet.headline(study), tearsheet.RISK]


def finite(tree: Any) -> Any:
    """With None in place of numbers that JSON has not."""
    if isinstance(tree, dict):
        return {name: finite(value) for name, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [finite(value) for value in tree]
    return None if isinstance(tree, float) and not math.isfinite(tree) else tree


def metric_lines(metrics: dict[str, float]) -> list[str]:
    """A line for each metric: its value, standard error, and what a perfect sampler scores; blank where not given."""
    show = lambda value: "" if value is None else f"{value:.5g}"
    rows = [("", "value", "std. error", "if perfect")]
    rows += [
        (name, show(value), show(metrics.get(f"{name}_se")), show(metrics.get(f"{name}_perfect")))
        for name, value in metrics.items()
        if not name.endswith(("_se", "_perfect"))
    ]
    return [f"{name:<36}{value:>12}{error:>12}{perfect:>12}".rstrip() for name, value, error, perfect in rows]


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
    from ..algos.trading.stage import test_set

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
