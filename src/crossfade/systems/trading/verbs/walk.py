"""The verb walk: train and judge fold after fold, forward in time."""

from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from ....errors import UsageError
from ....verbs.common import Common, print_json
from ....verbs.evaluating import finite, sheet
from ....verbs.training import _config, _system

FOLDS = 5  # if the config says nothing


@dataclass(kw_only=True)
class Walk(Common):
    """Walk forward: each fold of the days is judged by a policy that learned from what lies before it. One page.

    crossfade walk trading data=bars markets=ES folds=5 embargo=1
    """

    words: Annotated[Positional[tuple[str, ...]], arg(metavar="SYSTEM KEY=VALUE ...")] = ()
    """The system (trading), then any settings."""
    preset: str | None = None
    """A named setting to start from."""
    config: Path | None = None
    """A YAML file of settings; words on the command line go before it, a preset behind."""
    resamples: int = 2000
    """Repeats of the bootstrap, and accounts that try a firm's evaluation."""
    block: float | None = None
    """Mean length of the bootstrap's blocks in days; by default the cube root of the number of days."""
    firms: tuple[Path, ...] = ()
    """YAML files of prop-firm rules, beside those that come along."""

    def run(self) -> int:
        from ....run.files import write_json
        from ..judging import firms, walk
        from ..judging.stage import Effort, test_set

        system, words = _system(self.words)
        if system != "trading":
            raise UsageError(f"walk: expected trading, which has days in order of time, got {system}.")
        config = _config(system, words, self.config, self.preset)
        config = replace(config, folds=config.folds or FOLDS, fold=0)
        effort = Effort(self.resamples, self.block, firms.load(*self.firms))
        runs, folds = [], []
        for fold in range(config.folds):
            run, found = self._fold(replace(config, fold=fold), effort)
            runs.append(run)
            folds.append(found)
        name = f"{test_set(config).partition(', fold')[0]}, all {config.folds} folds"
        study = self._selection(runs[-1], config, walk.judge(config, folds, effort), name)
        folder = self.runs_dir / system / "-".join(("walk", config.parts[1], datetime.now().strftime("%Y%m%d-%H%M%S")))
        written = finite({"runs": [str(run.path) for run in runs], "test_set": name, "study": study})
        write_json(folder / "walk.json", written)
        page = walk.write_page(folder / "walk.html", config, study, folds, name)
        if self.json:
            return print_json(written)
        print("\n".join(sheet(name, study)))
        print(f"report: {page}")
        return 0

    def _fold(self, config: Any, effort: Any) -> tuple[Any, Any]:
        """Trains one fold; its run and what was found on the days held out."""
        from .... import checkpoint
        from ....run import RunDir, trials
        from ....trainers.trainer import Snapshot
        from ....trainers.training import make_trainer, precision, train
        from ..judging.stage import test_set

        with RunDir.create(self.runs_dir, "trading", config.parts, config.seed, config) as run:
            trials.begin(run, config)
            train("trading", config, run, quiet=self.quiet or self.json)
            if run.result is None:
                raise KeyboardInterrupt
            bundle = checkpoint.load(run.checkpoints, side="numpy")
            with precision(config):
                state = Snapshot(bundle.params, bundle.optimizer, bundle.replay["buffer"])
                found = make_trainer("trading", config, state, bundle.step).evaluate(effort)
            trials.judged(run, config, "eval", found.metrics["eval/sharpe"], test_set(config))
        return run, found.findings

    def _selection(self, run: Any, config: Any, study: dict[str, Any], name: str) -> dict[str, Any]:
        """With what the ledger knows. The trial's score becomes that of all folds together."""
        from ....run import trials
        from ..judging.study import selection

        trials.judged(run, config, "eval", study["figures"]["sharpe"]["value"], name)
        tried = trials.read(self.runs_dir, "trading")
        picked = selection(study["moments"], tried.trials, list(tried.scores.values()))
        return {**study, "selection": {**picked, "opened": tried.opened[name]}}
