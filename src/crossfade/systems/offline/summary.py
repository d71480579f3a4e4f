"""What a reader of a report asks first: how often the policy arrives, before and after it has seen rewards."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...run.files import read_json
from ...run.metrics import read_metrics
from ...run.page import paragraph
from ...run.report import Section
from .config import OfflineDataConfig


def summary(config: OfflineDataConfig, runs: Mapping[str, Path]) -> list[Section]:
    """A sentence for each run."""
    said = [f"{label}: {told}" for label, run in runs.items() if (told := headline(config, run))]
    return [Section("Headline", [paragraph(sentence) for sentence in said])] if said else []


def headline(config: OfflineDataConfig, run: Path) -> str:
    """Success at the end and when pre-training ended, and what others achieve; empty before the first evaluation."""
    log = read_metrics(run / "metrics.jsonl")
    rows = _judged(log)
    if not rows:
        return _validated(log)
    last = _last_evaluation(run) or rows[-1]
    told = f"success {_share(last)} after {int(last['step']):,} updates"
    if "eval/length" in last:
        told += f", {last['eval/length']:.0f} steps an episode"
    before = [row for row in rows if row["step"] == config.pretrain]
    if before and last["step"] > config.pretrain > 0:
        told += f"; {_share(before[0])} when pre-training ended, without rewards"
    others = [f"{name} {last[key]:.0%}" for name, key in OTHERS.items() if key in last]
    return f"{told}. {', '.join(others).capitalize()}." if others else f"{told}."


OTHERS = {"those who collected the data": "eval/scripted", "random actions": "eval/random"}


def _judged(log: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The rows of the log with an evaluation in a world."""
    known = np.flatnonzero(np.isfinite(log.get("eval/success", np.array([]))))
    return [{name: column[row].item() for name, column in log.items() if np.isfinite(column[row])} for row in known]


def _last_evaluation(run: Path) -> dict[str, Any] | None:
    """What `crossfade eval` left last, which has more episodes."""
    for path in sorted((run / "eval").glob("*.json"), reverse=True):
        found = read_json(path, "an evaluation")
        figures = found.get("metrics", found)
        if "eval/success" in figures:
            return {**figures, "step": found.get("step", 0)}
    return None


def _validated(log: Mapping[str, np.ndarray]) -> str:
    """Of a run that nobody judges in a world, its loss on data that are held out."""
    for phase, words in (("finetuning", "fine-tuning"), ("pretraining", "pre-training")):
        column = log.get(f"eval/{phase}/loss", np.array([]))
        if len(known := np.flatnonzero(np.isfinite(column))):
            step, value = log["step"][known[-1]], column[known[-1]]
            return f"loss of {words} {value:.4g} on held-out data after {int(step):,} updates; judged in no world."
    return ""


def _share(row: Mapping[str, Any]) -> str:
    error = row.get("eval/success_se", 0.0)
    return f"{row['eval/success']:.0%}" + (f" \N{PLUS-MINUS SIGN} {error:.0%}" if error else "")
