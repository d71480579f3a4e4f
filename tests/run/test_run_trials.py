"""The ledger of trials: what counts as one, what counts as a look, and that no line is lost."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest

from crossfade.errors import CrossfadeError
from crossfade.run import RunDir, trials
from crossfade.run.settings import RunConfig


@dataclass(frozen=True)
class Settings(RunConfig):
    steps: int = 10
    log_every: int = 1
    fold: int = 0
    days: str = "spring"
    file: str = ""

    @property
    def test_set(self) -> str:
        return self.days

    @property
    def sources(self) -> tuple[Path, ...]:
        return (Path(self.file),) if self.file else ()

    bookkeeping: ClassVar[tuple[str, ...]] = (*RunConfig.bookkeeping, "fold")


DEFAULT = Settings()


def make(tmp_path, config: Settings = DEFAULT) -> RunDir:
    return RunDir.create(tmp_path, "trading", ("ppo", "es", "torch"), config.seed, config)


def test_a_trial_is_a_set_of_settings(tmp_path):
    same = Settings(), Settings(log_every=5), Settings(fold=3)
    other = Settings(seed=1), Settings(steps=11)
    assert len({trials.digest(config) for config in same}) == 1
    assert len({trials.digest(config) for config in (*same, *other)}) == 3
    for config in (*same, *other, Settings()):
        with make(tmp_path, config) as run:
            trials.begin(run, config)
    assert trials.read(tmp_path, "trading", DEFAULT, "spring").trials == 3
    assert trials.read(tmp_path, "gflownet", DEFAULT, "spring") == trials.Tried(0, {}, 0, {})


def test_parameters_to_start_from_make_another_trial(tmp_path):
    with make(tmp_path) as run:
        for weights in (None, tmp_path / "a", tmp_path / "b", tmp_path / "a"):
            trials.begin(run, Settings(), weights=weights)
    assert trials.read(tmp_path, "trading", DEFAULT, "spring").trials == 3


def test_a_run_that_goes_on_stays_the_trial_it_was(tmp_path):
    with make(tmp_path) as run:
        trials.begin(run, Settings(), weights=tmp_path / "a")
        trials.begin(run, Settings(mode="torch"), resumed_from=Settings())
        assert trials.read(tmp_path, "trading", DEFAULT, "spring").trials == 1
        trials.begin(run, Settings(steps=20), resumed_from=Settings())
    with make(tmp_path, Settings(seed=1)) as other:  # trained before there was a ledger
        trials.begin(other, Settings(seed=1), resumed_from=Settings(seed=1))
    assert trials.read(tmp_path, "trading", DEFAULT, "spring").trials == 3


def test_scores_and_looks_are_those_of_the_trial_that_was_trained(tmp_path):
    with make(tmp_path) as run:
        trials.begin(run, Settings(), weights=tmp_path / "a")
        trials.judged(run, Settings(), "result", 1.5, "spring")
        trials.judged(run, Settings(), "eval", 1.25, "spring")
        trials.judged(run, Settings(), "eval", 18.0, "autumn")
        trials.judged(run, Settings(), "eval", float("nan"), "spring")
    with make(tmp_path, Settings(seed=1)) as other:
        trials.judged(other, Settings(seed=1), "eval", -0.5, "spring")  # trained before there was a ledger
    found = trials.read(tmp_path, "trading", DEFAULT, "spring")
    assert found.trials == 2 and sorted(found.scores.values()) == [-0.5, 1.25]
    assert found.opened == 4 and set(found.runs.values()) == {run.path.name, other.path.name}
    elsewhere = trials.read(tmp_path, "trading", DEFAULT, "autumn")
    assert (elsewhere.trials, list(elsewhere.scores.values()), elsewhere.opened) == (1, [18.0], 1)


def test_what_was_tried_on_another_test_set_counts_for_nothing(tmp_path):
    """A toy market's Sharpe ratio of 18 must not deflate that of a real one."""
    for config, score in ((Settings(), 1.0), (Settings(days="toy"), 18.0), (Settings(days="toy", seed=1), 17.0)):
        with make(tmp_path, config) as run:
            trials.begin(run, config)
            trials.judged(run, config, "result", score, config.test_set)
    found = trials.read(tmp_path, "trading", DEFAULT, "spring")
    assert (found.trials, list(found.scores.values()), found.opened) == (1, [1.0], 1)
    assert trials.read(tmp_path, "trading", DEFAULT, "toy").trials == 2


def test_a_test_set_of_files_is_another_one_when_they_change(tmp_path):
    bars = tmp_path / "bars"
    config = Settings(file=str(bars))
    for contents, seed in (("old", 0), ("old", 1), ("new", 2)):
        bars.write_text(contents)
        with make(tmp_path, replace(config, seed=seed)) as run:
            trials.begin(run, replace(config, seed=seed))
    assert trials.read(tmp_path, "trading", config, "spring").trials == 1
    bars.write_text("old")
    assert trials.read(tmp_path, "trading", config, "spring").trials == 2


def test_a_checkpoint_that_was_looked_at_is_a_trial(tmp_path):
    with make(tmp_path) as run:
        trials.begin(run, Settings())
        for step in (10, 20, 10):
            trials.judged(run, Settings(), "eval", 0.5, "spring", step)
        trials.judged(run, Settings(), "eval", 0.25, "spring")
    found = trials.read(tmp_path, "trading", DEFAULT, "spring")
    assert found.trials == 3 and found.scores[trials.digest(Settings())] == 0.25


def test_what_is_written_is_never_changed_and_is_plain_json(tmp_path):
    with make(tmp_path) as run:
        trials.begin(run, Settings())
        before = (tmp_path / "trials.jsonl").read_bytes()
        trials.judged(run, Settings(), "eval", float("inf"), "spring")
    after = (tmp_path / "trials.jsonl").read_bytes()
    assert after.startswith(before)
    assert [json.loads(line)["score"] for line in after.splitlines()] == [None, None]


def test_a_torn_line_loses_no_other_and_is_pointed_at(tmp_path):
    with make(tmp_path) as run:
        trials.begin(run, Settings())
        with open(tmp_path / "trials.jsonl", "a") as file:
            file.write('{"time": "20')
        trials.begin(run, replace(Settings(), seed=2))
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 3
    with pytest.raises(CrossfadeError, match="line 2"):
        trials.read(tmp_path, "trading", DEFAULT, "spring")


def test_runs_side_by_side_lose_no_line(tmp_path):
    with make(tmp_path) as run:
        code = (
            "import sys; from crossfade.run import RunDir, trials; from crossfade.run.settings import RunConfig\n"
            "run = RunDir.open(sys.argv[1])\n"
            "for i in range(50): trials._append(run, RunConfig(), {'event': 'eval', 'trial': sys.argv[2] + str(i),"
            " 'score': i, 'test_set': 'x' * 500})"
        )
        work = [subprocess.Popen([sys.executable, "-c", code, str(run.path), name]) for name in "abcd"]
        assert [process.wait() for process in work] == [0] * 4
    found = trials.read(tmp_path, "trading", DEFAULT, "x" * 500)
    assert found.trials == found.opened == 200
