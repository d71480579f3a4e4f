"""Walking forward, evaluating and reporting as a user does: one command each, on days that end at 10:05."""

import csv
import json
import re

import numpy as np
import pytest

from crossfade.cli import main
from crossfade.envs.trading import synthetic
from crossfade.envs.trading.trading_numpy import Trading
from crossfade.run import RunDir, list_runs, trials
from crossfade.systems.trading import data
from crossfade.systems.trading.config import TradingConfig
from crossfade.systems.trading.judging import findings, study, walk
from crossfade.systems.trading.judging.baselines import hold
from crossfade.systems.trading.judging.record import trade
from crossfade.systems.trading.judging.stage import Stage, StudyEffort
from crossfade.systems.trading.pictures import pictures

TINY = ("mode=torch", "n_envs=2", "n_steps=4", "hidden=4", "env.window=2", "epochs=1", "minibatches=1", "steps=1")
DAYS = ("days=9", "folds=2", "markets=ES,NQ")


@pytest.fixture(autouse=True, scope="module")
def short_days():
    whole = synthetic.bars
    with pytest.MonkeyPatch.context() as patch:
        cut = lambda *what: {name: of.where(of.minute < 605) for name, of in whole(*what).items()}
        patch.setattr(synthetic, "bars", cut)
        clear = [getattr(data, name).cache_clear for name in ("_bars", "_market")]
        for forget in clear:
            forget()
        yield
        for forget in clear:
            forget()


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    assert main(["walk", "trading", *TINY, *DAYS, "--resamples", "40", "--runs-dir", str(folder), "--quiet"]) == 0
    (page,) = (folder / "trading").glob("walk-*/walk.html")
    return folder, json.loads((page.parent / "walk.json").read_text()), page.read_text()


def test_every_fold_is_trained_and_judged_by_days_after_those_it_learned_from(walked):
    folder, found, _ = walked
    folds = found["study"]["folds"]
    assert [fold["fold"] for fold in folds] == [0, 1] and len(list_runs(folder)) == 2 == len(found["runs"])
    assert folds[0]["last_day"] < folds[1]["first_day"]
    assert found["study"]["days"] == sum(fold["days"] for fold in folds) == 6
    assert found["study"]["sessions"] == 12 and found["test_set"].endswith("all 2 folds")


def test_a_walk_is_one_trial_and_each_fold_one_look_by_training_and_one_by_the_walk(walked):
    folder, found, _ = walked
    whole = found["test_set"]
    tried = trials.read(folder, "trading", TradingConfig(), whole)
    assert tried.trials == 1 == found["study"]["selection"]["trials"]
    assert tried.opened == 1 == found["study"]["selection"]["opened"]
    folds = [whole.replace("all 2 folds", f"fold {fold} of 2") for fold in (0, 1)]
    assert [trials.read(folder, "trading", TradingConfig(), fold)[::2] for fold in folds] == [(1, 2), (1, 2)]
    sharpe = found["study"]["figures"]["sharpe"]["value"]
    assert list(tried.scores.values()) == ([] if sharpe is None else [sharpe])


def test_the_page_has_everything(walked):
    _, _, page = walked
    assert page.count("<svg") == 2 and "Risk notice" in page and "nan" not in page
    for title in ("Folds", "Compared with", "Fill rules", "Firms", "Selection", "Months", "Costs"):
        assert f"<h2>{title}</h2>" in page


def test_eval_prints_the_sheet_keeps_the_trades_and_counts_the_look(walked, capsys, tmp_path):
    folder, _, _ = walked
    run = list_runs(folder)[0]
    (tmp_path / "mine.yaml").write_text("my firm:\n  account: 50000\n  target: 1\n  drawdown: 1000\n")
    assert main(["eval", str(run), "--resamples", "40", "--firms", str(tmp_path / "mine.yaml")]) == 0
    text = capsys.readouterr().out
    for line in (
        "Sharpe ratio",
        "opening-range breakout",
        "pessimistic",
        "intraday trailing",
        "my firm",
        "Risk notice",
    ):
        assert line in text
    written = json.loads(next((run / "eval").glob("*.json")).read_text())
    assert written["study"]["selection"]["opened"] == 3 and written["firms"]["my firm"]["target"] == 1
    with open(run / "eval" / "trades.csv") as file:
        assert len(list(csv.DictReader(file))) == written["study"]["trades"]["number"]
    shown = pictures(RunDir.open(run).read_config(TradingConfig), {"one": run, "two": run})
    traded = written["study"]["trades"]["number"] > 0
    assert len(shown) == 2 + 2 * traded and all(svg.startswith("<svg") for svg, _ in shown)
    assert [caption.endswith("no promise of profit.") for _, caption in shown].count(True) == 2


@pytest.mark.slow
def test_a_report_begins_with_headline_risk_and_sheet_and_equity_has_dates(walked, tmp_path, capsys):
    run = list_runs(walked[0])[0]
    assert main(["eval", str(run), "--resamples", "40", "--json"]) == 0
    study = json.loads(capsys.readouterr().out)["study"]
    assert main(["report", str(run), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    sheet = (">Result<", ">Selection<", ">Firms<", ">Compared with<")
    rest = ("<svg", "<h2>Results", "eval/daily over steps", "<h2>Other metrics")
    places = [page.index(text) for text in (" per day (", "Risk notice", *sheet, *rest)]
    assert places == sorted(places)
    assert f">{study['first_day']} to {study['last_day']}</text>" in page, "below the axis of the equity"
    assert page.count("<h2>eval/") == 4, "the headline: dollars per day of the policy and of three who see nothing"
    shown = re.sub(r"<details>.*?</details>", "", page, flags=re.DOTALL)
    assert "train/entropy" in page and "train/entropy" not in shown and ">Months<" not in shown


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["torch", "jax_full"])
def test_eval_draws_the_course_of_a_run_through_its_checkpoints(mode, tmp_path, capsys):
    words = [*TINY[1:-1], *DAYS, f"mode={mode}", "steps=3", "chunk=1", "checkpoint_every=1", "eval_every=0", "--quiet"]
    assert main(["train", "trading", *words, "--runs-dir", str(tmp_path)]) == 0
    run = list_runs(tmp_path)[0]
    capsys.readouterr()
    assert main(["eval", str(run), "--resamples", "40", "--checkpoints", "--json"]) == 0
    curve = json.loads(capsys.readouterr().out)["study"]["checkpoints"]
    assert [row["step"] for row in curve] == [1, 2]  # the last one is studied in full


def test_a_broken_file_of_firms_is_refused_before_anything_is_done(walked, capsys, tmp_path):
    folder, _, _ = walked
    (tmp_path / "mine.yaml").write_text("mine:\n  target: 1\n")
    before = (folder / trials.NAME).read_bytes()
    assert main(["eval", str(list_runs(folder)[0]), "--firms", str(tmp_path / "mine.yaml")]) == 2
    assert "drawdown" in capsys.readouterr().err and (folder / trials.NAME).read_bytes() == before


@pytest.mark.parametrize("words", [("--resamples", "1"), ("--block", "0.5")])
def test_an_effort_that_makes_no_sense_is_refused(walked, capsys, words):
    assert main(["eval", str(list_runs(walked[0])[0]), *words]) == 2
    assert words[0][2:] in capsys.readouterr().err


def test_only_what_has_days_can_be_walked(capsys):
    assert main(["walk", "gflownet"]) == 2
    assert "trading" in capsys.readouterr().err


def test_joined_findings_are_those_of_all_days_at_once():
    """Days of one market, judged whole and in two pieces by the same script."""
    config = TradingConfig(eval_days=5)
    trader = lambda params, market, settings, m, t, n: trade(Trading(params), market, settings, m, t, hold, n)

    def part(chosen: slice) -> findings.Findings:
        where = Stage(config)
        m, t = where.at
        where.__dict__["at"] = m[chosen], t[chosen]
        record = trader(config.params, where.market, where.settings, *where.at, where.n_bars)
        return findings.find(where, trader, record, {})

    whole, pieces = part(slice(None)), [part(slice(0, 2)), part(slice(2, None))]
    joined = findings.join(pieces)
    numbers = lambda of: json.dumps(study.study(config, of, StudyEffort(resamples=30)), sort_keys=True)
    assert numbers(joined) == numbers(whole)
    assert walk.judge(config, pieces, StudyEffort(resamples=30))["folds"][1]["days"] == 3
    assert np.array_equal(joined.paths.low, whole.paths.low)
    assert numbers(findings.join(pieces[::-1])) != numbers(whole)
