"""The ledger of trials, `<runs-dir>/trials.jsonl`: what was tried, and how often the days held out were looked at.

A good result picked from many is worth less than the same result of a single try, so the number of tries is kept where
it cannot be forgotten. One line is appended when a run begins to train, one when it has ended, one for each evaluation;
lines are never changed. A trial is a set of settings: a run that is resumed or repeated as it was counts once. Trials
are counted for each test set apart, and a test set made of files is another one when their contents are others: what
was tried on one says nothing about luck on another.
"""

import dataclasses
import fcntl
import hashlib
import json
import math
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..config import to_yaml
from ..errors import CrossfadeError
from .provenance import digests
from .rundir import RunDir
from .settings import RunConfig

NAME = "trials.jsonl"


class Tried(NamedTuple):
    """What was tried on one test set."""

    trials: int  # trained to be judged by it, or judged by it
    scores: dict[str, float]  # of each trial the last known, by its digest
    opened: int  # how often it was looked at, by training or evaluation
    runs: dict[str, str]  # of each trial that was judged by it, the name of a run


def begin(run: RunDir, config: RunConfig, weights: Path | None = None, resumed_from: RunConfig | None = None) -> None:
    """A run begins to train with this config, from the parameters in `weights` if not from fresh ones; or goes on.

    A run that goes on with the settings it was `resumed_from` stays the trial it was, under the name it had: another
    version, with other settings to be named by, may have begun it.
    """
    trial = digest(config, "" if weights is None else str(weights.resolve()))
    if resumed_from is not None and digest(resumed_from) == digest(config):
        trial = _own(run) or trial
    _append(run, config, {"event": "train", "trial": trial, "score": None, "test_set": config.test_set})


def judged(
    run: RunDir,
    config: RunConfig,
    event: Literal["result", "eval"],
    score: float | None,
    test_set: str = "",
    step: int | None = None,
) -> None:
    """A run was judged by `score`, its system's figure of merit, on a test set: at its end, or whenever one asked.

    The checkpoint of a `step` that is given is a trial of its own.
    """
    trial = (_own(run) or digest(config)) + ("" if step is None else f"@{step}")
    known = score if score is not None and math.isfinite(score) else None
    _append(run, config, {"event": event, "trial": trial, "score": known, "test_set": test_set})


def read(runs_dir: Path, system: str, config: RunConfig, test_set: str) -> Tried:
    """The trials of a system under this folder that are judged by a test set made of the files that `config` reads.

    Lines of version 0.1 do not say which contents these had, and count.
    """
    rows = [row for row in _rows(runs_dir) if (row["system"], row["test_set"]) == (system, test_set)]
    data = _digest_of_sources(config)
    rows = [row for row in rows if row.get("data", data) == data]
    looks = [row for row in rows if row["event"] != "train"]
    scores = {row["trial"]: row["score"] for row in looks if row["score"] is not None}
    runs = {row["trial"]: row["run"] for row in looks}
    return Tried(len({row["trial"] for row in rows}), scores, len(looks), runs)


def digest(config: RunConfig, extra: str = "") -> str:
    """A trial's name: equal for configs that make the same run, but for bookkeeping; `extra` is what else made it."""
    defaults = {f.name: f.default for f in dataclasses.fields(config) if f.name in config.bookkeeping}
    text = to_yaml(dataclasses.replace(config, **defaults)) + extra
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _own(run: RunDir) -> str:
    """The trial that a run was last trained as; empty if it is not in the ledger."""
    own = run.meta["system"], run.path.name
    rows = [row for row in _rows(run.path.parent.parent) if (row["system"], row["run"]) == own]
    return next((row["trial"] for row in reversed(rows) if "@" not in row["trial"]), "")


def _digest_of_sources(config: RunConfig) -> str:
    """The contents of the files that a run reads; empty without any."""
    text = json.dumps(digests(config.sources), sort_keys=True) if config.sources else ""
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def _append(run: RunDir, config: RunConfig, row: dict[str, Any]) -> None:
    """Adds a line in one write, so that runs side by side do not mix theirs; a torn last line is closed first."""
    facts = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": run.meta["system"],
        "run": run.path.name,
        "data": _digest_of_sources(config),
    }
    line = json.dumps({**facts, **row}).encode() + b"\n"
    with open(run.path.parent.parent / NAME, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 1, 0))
        torn = size > 0 and file.read(1) != b"\n"
        file.write(b"\n" + line if torn else line)
        file.flush()
        os.fsync(file.fileno())


def _rows(runs_dir: Path) -> list[dict[str, Any]]:
    path, rows = runs_dir / NAME, []
    if not path.exists():
        return rows
    with open(path, encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        lines = file.read().splitlines()
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:
            raise CrossfadeError(
                f"{path}, line {number}: expected JSON, got {line[:60]!r}. A run was cut off while it wrote: mend the "
                "line or take it out."
            ) from error
    return rows
