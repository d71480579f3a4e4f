"""The verb eval: all that can be said of what a run has learned."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg

from ..errors import UsageError
from ..run.evaluation import Effort, Evaluation, Judged
from .arguments import positional
from .common import Common, print_json, telling

if TYPE_CHECKING:
    from ..registry import System
    from ..run import RunDir
    from .seeds import Evaluated


@dataclass(kw_only=True)
class Eval(Common):
    """Evaluate a run's last checkpoint with all that its system can say of it; or runs of several seeds together.

    crossfade eval runs/SYSTEM/RUN

    crossfade eval runs/SYSTEM/RUN runs/SYSTEM/RUN

    `crossfade eval runs/SYSTEM/RUN --help` shows the options of the run's system.
    """

    paths: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN ...")] = ()
    """The folder of a run; several must differ in their seed alone."""
    effort: OmitArgPrefixes[Effort] = field(default_factory=Effort)
    """How much to compute."""

    def run(self) -> int:
        from ..registry import find
        from ..run import RunDir
        from . import seeds
        from .configured import read_config

        if not self.paths:
            raise UsageError("expected the folder of a run, got none; `crossfade train` makes one.")
        runs = list(map(RunDir.open, self.paths))
        systems = [find(run.system) for run in runs]
        configs = [read_config(s, (), run.config_path) for s, run in zip(systems, runs, strict=True)]
        if len(runs) == 1:
            written, lines = self._evaluate(runs[0], systems[0], configs[0])
            if self.json:
                return print_json(written)
            print("\n".join([f"step {written['step']}", *lines]))
            return 0
        seeds.check_repeats(self.paths, systems, configs)
        found = []
        with telling("evaluated", lambda: {f"seed {one.seed}": one.path for one in found}):
            for run, config in zip(runs, configs, strict=True):
                written, _ = self._evaluate(run, systems[0], config)
                found.append(seeds.Evaluated(run.path, config.seed, written))
        return self._tell(systems[0], found)

    def _evaluate(self, run: "RunDir", system: "System", config: Any) -> tuple[dict[str, Any], list[str]]:
        """Evaluates one run and keeps what was found in its folder; also in words."""
        from .. import checkpoint
        from ..loading import load_attribute
        from ..run.files import finite, write_array, write_bytes, write_json
        from ..trainers.making import make_trainer, precision
        from ..trainers.saving import snapshot_of

        bundle = checkpoint.load(run.checkpoints, side="numpy")
        with precision(config):
            found = make_trainer(system, config, snapshot_of(bundle), bundle.step).evaluate(self.effort)
            for stale in run.eval.glob("shown_*.npy"):  # pictures of an example, which not every policy has
                stale.unlink()
            for name, array in found.arrays.items():
                write_array(run.eval / f"{name}.npy", array)
            judge = load_attribute(system.judge) if system.judge else _judge
            judged = judge(run, config, found, self.effort)
        for name, content in found.files.items():
            write_bytes(run.eval / name, content if isinstance(content, bytes) else content.encode())
        asked = asdict(self.effort)
        written = finite({"step": bundle.step, **asked, "test_set": found.test_set, **found.metrics, **judged.record})
        write_json(run.eval / f"{bundle.step:010d}.json", written)
        return written, judged.lines

    def _tell(self, system: "System", found: "Sequence[Evaluated]") -> int:
        """Runs of several seeds as a table, as JSON and as a page beside their folders."""
        from ..run import Section, write_report
        from ..run.files import write_json
        from . import seeds
        from .pictures import sections

        folder = found[0].path.parent
        over = {name: of._asdict() for name, of in seeds.spreads([one.written for one in found]).items()}
        runs = [{"run": str(one.path), "seed": one.seed, **one.written} for one in found]
        written = {"runs": runs, "seeds": over}
        write_json(folder / "eval.json", written)
        first = Section("Over seeds", seeds.blocks(system, found))
        title = f"{system.name}: {len(found)} seeds"
        page = write_report(folder / "eval.html", title, [first, *sections([one.path for one in found])])
        if self.json:
            return print_json(written)
        print("\n".join([*seeds.lines(system, found), f"report: {page}"]))
        return 0


def for_run(words: Sequence[str]) -> type[Eval]:
    """The verb with the options of the system of the run that the words name; UsageError if they name none."""
    from ..loading import load_attribute
    from ..registry import find
    from ..run import RunDir

    named = positional(Eval, words)
    if not named or (not os.path.isdir(named[0]) and {"-h", "--help"} & {*words}):
        return Eval
    system = find(RunDir.open(named[0]).system)
    if not system.effort:
        return Eval
    effort = load_attribute(system.effort)
    options = ("effort", OmitArgPrefixes[effort], field(default_factory=effort))
    return make_dataclass(Eval.__name__, [options], bases=(Eval,), namespace={"__doc__": Eval.__doc__}, kw_only=True)


def _judge(run: object, config: object, found: Evaluation, effort: Effort) -> Judged:
    """Every metric in a table, and what the policy was judged by."""
    about = [f"judged by: {found.test_set}"] if found.test_set else []
    return Judged({}, [*metric_lines(found.metrics), *about])


def metric_lines(metrics: dict[str, float]) -> list[str]:
    """A line for each metric: its value, standard error, and what a perfect policy scores; blank where not given."""
    show = lambda value: "" if value is None else f"{value:.5g}"
    rows = [("", "value", "std. error", "if perfect")]
    rows += [
        (name, show(value), show(metrics.get(f"{name}_se")), show(metrics.get(f"{name}_perfect")))
        for name, value in metrics.items()
        if not name.endswith(("_se", "_perfect"))
    ]
    return [f"{name:<36}{value:>12}{error:>12}{perfect:>12}".rstrip() for name, value, error, perfect in rows]
