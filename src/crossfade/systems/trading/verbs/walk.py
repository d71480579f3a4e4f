"""The verb walk: train and judge fold after fold, forward in time."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ....errors import UsageError
from ....ranges import INT32, Range
from ....verbs.common import Common, print_json, telling
from ....verbs.configured import Words, read_config, read_system

if TYPE_CHECKING:
    from ....registry import System
    from ....run import RunDir
    from ..config import TradingConfig
    from ..judging.findings import Findings
    from ..judging.stage import StudyEffort

FOLDS = 5  # if the config says nothing


@dataclass(kw_only=True)
class Walk(Common):
    """Walk forward: each fold of the days is judged by a policy that learned from what lies before it. One page.

    crossfade walk trading data=bars markets=ES folds=5 embargo=1
    """

    words: Words = ()
    """The system (trading), then any settings."""
    preset: str | None = None
    """A named setting to start from."""
    config: Path | None = None
    """A YAML file of settings; words on the command line go before it, a preset behind."""
    resamples: Annotated[int, Range(2, INT32)] = 2000
    """Repeats of the bootstrap, and accounts that try a firm's evaluation."""
    block: Annotated[float, Range(least=1)] | None = None
    """Mean length of the bootstrap's blocks in days; by default the cube root of the number of days."""
    firms: tuple[Path, ...] = ()
    """YAML files of prop-firm rules, beside those that come along."""

    def run(self) -> int:
        from ....run.files import finite, write_json
        from ..judging import walk
        from ..judging.stage import StudyEffort
        from ..judging.verdict import sheet

        system, words = read_system(self.words)
        if system.name != "trading":
            raise UsageError(f"walk: expected trading, which has days in order of time, got {system.name}.")
        config = read_config(system, words, self.config, self.preset)
        config = replace(config, folds=config.folds or FOLDS, fold=0)
        effort = StudyEffort(self.resamples, self.block, firms=self.firms)
        runs: list[RunDir] = []
        folds: list[Findings] = []
        of = f" of {config.folds}"
        with telling("folds done", lambda: {f"{i}{of}": run.path for i, run in enumerate(runs)}):
            for fold in range(config.folds):
                run, found = self._fold(system, replace(config, fold=fold), effort)
                runs.append(run)
                folds.append(found)
        name = f"{config.test_set.partition(', fold')[0]}, all {config.folds} folds"
        study = self._selection(runs[-1], config, walk.judge(config, folds, effort), name)
        label = "-".join(("walk", config.parts[1], datetime.now().strftime("%Y%m%d-%H%M%S")))
        folder = self.runs_dir / system.name / label
        written = finite({"runs": [str(run.path) for run in runs], "test_set": name, "study": study})
        write_json(folder / "walk.json", written)
        page = walk.write_page(folder / "walk.html", config, study, folds, name)
        if self.json:
            return print_json(written)
        print("\n".join(sheet(name, study)))
        print(f"report: {page}")
        return 0

    def _fold(self, system: "System", config: "TradingConfig", effort: "StudyEffort") -> "tuple[RunDir, Findings]":
        """Trains one fold; its run and what was found on the days held out."""
        from .... import checkpoint
        from ....run import RunDir, trials
        from ....trainers.making import make_trainer, precision
        from ....trainers.saving import snapshot_of
        from ....trainers.training import train_to_end

        with RunDir.create(self.runs_dir, system.name, config.parts, config.seed, config) as run:
            train_to_end(system, config, run, quiet=self.quiet or self.json)
            bundle = checkpoint.load(run.checkpoints, side="numpy")
            with precision(config):
                found: Any = make_trainer(system, config, snapshot_of(bundle), bundle.step).evaluate(effort)
            trials.judged(run, config, "eval", found.metrics[system.score], config.test_set)
        return run, found.findings

    def _selection(self, run: "RunDir", config: "TradingConfig", study: dict[str, Any], name: str) -> dict[str, Any]:
        """The study with the ledger's trial count. The trial's score becomes that of all folds together."""
        from ....run import trials
        from ..judging.study import selection

        trials.judged(run, config, "eval", study["figures"]["sharpe"]["value"], name)
        tried = trials.read(self.runs_dir, run.meta["system"], config, name)
        picked = selection(study["moments"], tried.trials, list(tried.scores.values()))
        return {**study, "selection": {**picked, "opened": tried.opened}}
