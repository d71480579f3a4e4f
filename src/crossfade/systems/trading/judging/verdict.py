"""What `crossfade eval` says of a trader: the study, and how much of it is left once every look is counted."""

from dataclasses import asdict
from typing import Any

import numpy as np

from .... import checkpoint
from ....loading import load_attribute
from ....run import RunDir, trials
from ....run.evaluation import Judged
from ..config import TradingConfig
from ..evaluation import TradingEvaluation
from . import tearsheet
from .stage import Stage, StudyEffort
from .study import selection


def judge(run: RunDir, config: TradingConfig, found: TradingEvaluation, effort: StudyEffort) -> Judged:
    """The study with what the ledger knows; these looks at the test set are written down first, and count."""
    curve = _curve(run, config) if effort.checkpoints else []
    trials.judged(run, config, "eval", found.metrics["eval/sharpe"], found.test_set)
    for row in curve:
        trials.judged(run, config, "eval", row["sharpe"], found.test_set, int(row["step"]))
    tried = trials.read(run.path.parent.parent, run.meta["system"], config, found.test_set)
    judged = [run.path.parent / name / "eval" / "daily.npy" for name in tried.runs.values()]
    dailies = [np.load(path, allow_pickle=False) for path in dict.fromkeys(judged) if path.exists()]
    picked = selection(found.study["moments"], tried.trials, list(tried.scores.values()), dailies)
    chosen = {**picked, "opened": tried.opened}
    study = {**found.study, **({"checkpoints": curve} if curve else {}), "selection": chosen}
    firms = {name: asdict(firm) for name, firm in effort.rules.items()}
    return Judged({"firms": firms, "study": study}, sheet(found.test_set, study))


def sheet(title: str, study: dict[str, Any]) -> list[str]:
    """A study for the terminal: tables, then the headline and the notice of risk."""
    about = f"{study['days']} days from {study['first_day']} to {study['last_day']}"
    tables = [line for table in tearsheet.tables(study) for line in ("", *tearsheet.lines(table))]
    return [f"{title}; {about}", *tables, "", tearsheet.headline(study), tearsheet.RISK]


def _curve(run: RunDir, config: TradingConfig) -> list[dict[str, Any]]:
    """A few figures of every checkpoint but the last, which is studied."""
    bundles = [checkpoint.load(path, side="numpy") for path in checkpoint.list_bundles(run.checkpoints)[:-1]]
    side, stage = "jax" if config.mode.startswith("jax") else "torch", Stage(config)
    records = load_attribute(f"{__package__}.checkpoints_{side}:records")
    parameters, buffers = [b.params for b in bundles], [b.replay["buffer"] for b in bundles]
    found = records(config, stage, parameters, buffers) if bundles else []
    return [{"step": b.step, **stage.brief(record)} for b, record in zip(bundles, found, strict=True)]
