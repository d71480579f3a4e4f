"""The ledger of trials: what counts as one, what counts as a look, and that no line is lost."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace
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
    assert trials.read(tmp_path, "trading").trials == 3
    assert trials.read(tmp_path, "gflownet") == trials.Tried(0, {}, {}, {})


def test_parameters_to_start_from_make_another_trial(tmp_path):
    with make(tmp_path) as run:
        for weights in (None, tmp_path / "a", tmp_path / "b", tmp_path / "a"):
            trials.begin(run, Settings(), weights=weights)
    assert trials.read(tmp_path, "trading").trials == 3


def test_a_run_that_goes_on_stays_the_trial_it_was(tmp_path):
    with make(tmp_path) as run:
        trials.begin(run, Settings(), weights=tmp_path / "a")
        trials.begin(run, Settings(mode="torch"), resumed_from=Settings())
        assert trials.read(tmp_path, "trading").trials == 1
        trials.begin(run, Settings(steps=20), resumed_from=Settings())
    with make(tmp_path, Settings(seed=1)) as other:  # trained before there was a ledger
        trials.begin(other, Settings(seed=1), resumed_from=Settings(seed=1))
    assert trials.read(tmp_path, "trading").trials == 3


def test_scores_and_looks_are_those_of_the_trial_that_was_trained(tmp_path):
    with make(tmp_path) as run:
        trials.begin(run, Settings(), weights=tmp_path / "a")
        trials.judged(run, Settings(), "result", 1.5, "spring")
        trials.judged(run, Settings(), "eval", 1.25, "spring")
        trials.judged(run, Settings(), "eval", float("nan"), "autumn")
    with make(tmp_path, Settings(seed=1)) as other:
        trials.judged(other, Settings(seed=1), "eval", -0.5, "spring")  # trained before there was a ledger
    found = trials.read(tmp_path, "trading")
    assert found.trials == 2 and sorted(found.scores.values()) == [-0.5, 1.25]
    assert found.opened == {"spring": 3, "autumn": 1}
    assert set(found.runs["spring"].values()) == {run.path.name, other.path.name}


def test_a_checkpoint_that_was_looked_at_is_a_trial(tmp_path):
    with make(tmp_path) as run:
        trials.begin(run, Settings())
        for step in (10, 20, 10):
            trials.judged(run, Settings(), "eval", 0.5, "spring", step)
        trials.judged(run, Settings(), "eval", 0.25, "spring")
    found = trials.read(tmp_path, "trading")
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
        trials.read(tmp_path, "trading")


def test_runs_side_by_side_lose_no_line(tmp_path):
    with make(tmp_path) as run:
        code = (
            "import sys; from crossfade.run import RunDir, trials\n"
            "run = RunDir.open(sys.argv[1])\n"
            "for i in range(50): trials._append(run, {'event': 'eval', 'trial': sys.argv[2] + str(i), 'score': i,"
            " 'test_set': 'x' * 500})"
        )
        work = [subprocess.Popen([sys.executable, "-c", code, str(run.path), name]) for name in "abcd"]
        assert [process.wait() for process in work] == [0] * 4
    found = trials.read(tmp_path, "trading")
    assert found.trials == 200 and found.opened == {"x" * 500: 200}
