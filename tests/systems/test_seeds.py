"""Runs of several seeds in one evaluation, and the speed of a climb: the smallest system, with no judge of its own."""

import json
import re
import statistics
from pathlib import Path

import pytest

from crossfade.cli import main
from crossfade.run import RunDir, list_runs
from crossfade.run.page import show

TINY = ("toy:RECORD", "mode=torch", "steps=2", "eval_every=0", "--quiet")


FEW = ("batch_size=1",)  # so that seeds learn different things


def trained(folder, *words: str):
    before = set(list_runs(folder))
    assert main(["train", *TINY, *words, "--runs-dir", str(folder)]) == 0
    (run,) = set(list_runs(folder)) - before
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [str(trained(folder, f"seed={seed}", *FEW)) for seed in (5, 3, 4)]


def test_seeds_are_told_one_by_one_with_their_mean_and_spread(runs, capsys):
    assert main(["eval", *runs]) == 0
    *table, page = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[1:]] == ["seed", "seed", "seed", "mean", "spread"]
    assert [line.split()[1] for line in table[1:4]] == ["5", "3", "4"] and table[0].split() == ["eval/regret"]
    alone = []
    for run in runs:
        assert main(["eval", run, "--json"]) == 0
        alone.append(json.loads(capsys.readouterr().out))
    regrets = [one["eval/regret"] for one in alone]
    assert len(set(regrets)) > 1, "seeds must differ, or this test says nothing"
    assert main(["eval", *runs, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [{k: v for k, v in of.items() if k not in ("run", "seed")} for of in found["runs"]] == alone
    over = found["seeds"]["eval/regret"]
    assert over["mean"] == pytest.approx(statistics.fmean(regrets))
    assert over["deviation"] == pytest.approx(statistics.stdev(regrets))
    assert (over["low"], over["high"]) == (min(regrets), max(regrets))
    text = Path(page.removeprefix("report: ")).read_text()
    assert "Over seeds" in text and text.count("<td>seed ") == 3 and "<td>spread</td>" in text


def test_runs_of_other_settings_are_refused_by_name(runs, capsys):
    other = trained(Path(runs[0]).parents[1], "seed=6", "batch_size=4", "lr=0.1")
    assert main(["eval", *runs, str(other)]) == 2
    told = capsys.readouterr().err
    assert "differ in their seed alone" in told
    assert "batch_size: 1, 1, 1, 4" in told and "lr: 0.05, 0.05, 0.05, 0.1" in told and "seed:" not in told


def test_what_changes_nothing_of_what_is_learned_may_differ(runs, capsys):
    other = trained(Path(runs[0]).parents[1], "seed=7", *FEW, "chunk=1", "log_every=2")
    assert main(["eval", runs[0], str(other)]) == 0
    assert "seed 7" in capsys.readouterr().out


def test_the_speed_of_a_mode_is_one_number_wherever_a_climb_shows_it(tmp_path, capsys):
    words = ("toy:RECORD", "steps=6", "chunk=2", "eval_every=0", "--modes", "torch", "jax_policy", "--updates", "2")
    assert main(["climb", *words, "--runs-dir", str(tmp_path)]) == 0
    told, page = capsys.readouterr().out, (tmp_path / "bandit" / "climb.html").read_text()
    for run in list_runs(tmp_path):
        rate = show(RunDir.open(run).result["time/its"])
        assert f"{rate} updates/s" in told, "as the rung is climbed"
        assert f"<td>{rate}</td>" in page, "in the table"
        assert re.search(rf">{re.escape(rate)}(  \([\d.e+]+x\))?</text>", page), "beside the bar"


def test_a_seed_counts_once_and_no_run_is_none(runs, capsys):
    assert main(["eval", runs[0], runs[0]]) == 2
    assert "different seeds, got seeds 5, 5" in capsys.readouterr().err
    assert main(["eval"]) == 2
    assert "expected the folder of a run, got none" in capsys.readouterr().err
