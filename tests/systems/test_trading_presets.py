"""Every preset of trading, and every phase without one, through the verbs that users run: train, eval, walk, report."""

from pathlib import Path

import jaxtyping
import pytest

from crossfade.cli import main
from crossfade.config import resolve
from crossfade.registry import find
from crossfade.systems.trading.config import TradingConfig

RECORD = find("trading")
# The mode that compiles least: that all modes are the same run is the contract's business.
SIZES = ("mode=jax_policy", "n_envs=4", "n_steps=16", "hidden=8", "env.window=3", "days=6", "eval_days=2", "steps=2")
PACE = ("chunk=2", "epochs=1", "minibatches=2", "log_every=2", "eval_every=0", "checkpoint_every=0")
CASES = {name: ("--preset", name) for name in RECORD.presets} | {f"env.phase={n}": (f"env.phase={n}",) for n in (2, 3)}


@pytest.fixture
def unchecked(monkeypatch):
    """Without the type checks of the test run, which double the time of whole verbs."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_the_demo_is_trained_and_judged(tmp_path, capsys):
    """In the default run; walk and report of small runs are in tests/algos/test_trading_walk.py."""
    place = ("--quiet", "--runs-dir", str(tmp_path))
    assert main(["train", "trading", "--preset", "demo", *SIZES, *PACE, *place]) == 0
    (run,) = _runs(tmp_path)
    assert main(["eval", str(run), "--resamples", "20", *place]) == 0
    assert "per day" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", CASES)
def test_train_eval_walk_and_report(name, tmp_path, capsys):
    words, place = (*SIZES, *PACE), ("--quiet", "--runs-dir", str(tmp_path))
    assert main(["train", "trading", *CASES[name], *words, *place]) == 0
    (run,) = _runs(tmp_path)
    assert main(["eval", str(run), "--resamples", "20", *place]) == 0
    assert "per day" in capsys.readouterr().out
    assert main(["walk", "trading", "folds=2", *CASES[name], *words, *place, "--resamples", "20"]) == 0
    assert main(["report", str(run), "--runs-dir", str(tmp_path)]) == 0


def _runs(folder: Path) -> list[Path]:
    return [path.parent for path in folder.rglob("config.yaml")]


def test_presets_are_settings_that_exist():
    for name in RECORD.presets:
        resolve(TradingConfig(), presets=RECORD.presets, preset=name)


def test_the_firm_preset_is_an_account_of_ten_days_that_risks_a_tenth_of_its_drawdown():
    firm = resolve(TradingConfig(), presets=RECORD.presets, preset="firm")
    assert (firm.balance, firm.drawdown, firm.account_days, firm.risk) == (50_000, 2500, 10, 250)
